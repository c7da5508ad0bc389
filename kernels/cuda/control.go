package cuda

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

// The layout that src/exchange.cuh declares.
const (
	maxRanks  = 8
	maxBlocks = 512
	areas     = 6 // of MaxBytes each in a slot
	slots     = 2 // for even and odd operations

	localBytes   = maxBlocks*4 + 16
	opsOffset    = 0
	reportStride = 128
	// FirstOp is the number of a group's first operation.
	FirstOp = 2
)

// Handle names a device allocation to other processes of this machine.
type Handle [handleBytes]byte

const handleBytes = 64 // CU_IPC_HANDLE_SIZE

// ControlBytes is the size of the control memory of a group.
const ControlBytes = reportStride * (1 + maxRanks)

// HostBytes is the size of the shared memory of the host path.
func HostBytes(ranks, maxBytes int) int { return ranks * outboxBytes(maxBytes) }

// Outbox is the part of the host path's memory that a rank writes.
func Outbox(host []byte, rank, maxBytes int) []byte {
	return host[rank*outboxBytes(maxBytes):][:outboxBytes(maxBytes)]
}

func outboxBytes(maxBytes int) int { return slots * areas * maxBytes }

// Blame says which wait of a rank ended the group.
type Blame struct {
	Rank  int // whose wait it was
	Peer  int // who did not come
	Op    uint32
	Phase string
}

var phaseNames = [...]string{"", "scatter", "gather", "flag"}

// Blames lists what ranks reported in the control memory of a group.
func Blames(control []byte) []Blame {
	var list []Blame
	for r := range maxRanks {
		report := control[reportStride*(1+r):]
		if atomic.LoadUint32((*uint32)(unsafe.Pointer(&report[0]))) == 0 {
			continue
		}
		phase := binary.LittleEndian.Uint32(report[8:])
		list = append(list, Blame{
			Rank: r, Peer: int(binary.LittleEndian.Uint32(report[12:])),
			Op: binary.LittleEndian.Uint32(report[4:]), Phase: phaseNames[min(int(phase), len(phaseNames)-1)],
		})
	}
	return list
}

// Progress is the number of an operation that a rank's device has begun, one in 64.
func Progress(control []byte, rank int) uint32 {
	return atomic.LoadUint32((*uint32)(unsafe.Pointer(&control[reportStride*(1+rank)+16])))
}

// Abort ends every wait of the group, on all its devices. It is for good.
func Abort(control []byte) { atomic.StoreUint32((*uint32)(unsafe.Pointer(&control[0])), 1) }

// Aborted reports whether the group is over.
func Aborted(control []byte) bool {
	return atomic.LoadUint32((*uint32)(unsafe.Pointer(&control[0]))) != 0
}
