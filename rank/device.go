package rank

import (
	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/kernels/cuda"
)

// device is a GPU as an engine uses it. Its tensors are in memory that the host
// cannot read.
type device interface {
	kernels.Backend
	// hostMemory is pinned memory, which copies from the device are fastest to. It
	// lives until Close.
	hostMemory(bytes int) ([]byte, error)
	// record runs a pass over b and keeps it as a graph; replay runs it for another
	// batch of the same shape. replay reports false, having done nothing, where the
	// recording is out of date. See cuda.Backend.Record.
	record(b *kernels.Batch, pass func()) (recording, error)
	replay(r recording, b *kernels.Batch) bool
	// capability is what all devices of a group must have in common.
	capability() capability
	// readBandwidth is what reads alone reach, in bytes a second.
	readBandwidth() (float64, error)
	// end makes this rank's end of the all-reduces of one epoch.
	end(c endConfig) (end, error)
}

// recording is a pass as a graph.
type recording interface{ Close() error }

// capability is what the choice of an all-reduce form depends on. The group works
// with the least of each.
type capability struct {
	major  int // compute capability
	blocks int // that one rank may have on its device at a time
}

// endConfig describes one rank's end of an epoch's all-reduces.
type endConfig struct {
	rank, ranks int
	path        path
	common      capability
	control     []byte // see cuda.ExchangeConfig
	host        []byte
	config      *Config
}

// end is one rank's end of the all-reduces between GPUs.
type end interface {
	// handle names the end's memory to other processes; connect takes the handles of
	// all ranks, in order.
	handle() (cuda.Handle, error)
	connect(handles []cuda.Handle) error
	// check runs all-reduces of known data and compares every bit. All ranks call it
	// together.
	check(width int) error

	// reduce enqueues dst = sum over ranks of src. Both are bf16 with rows one behind
	// the other.
	reduce(dst, src kernels.Tensor) error
	// reduceAddNorm enqueues the sum, its addition to residual and the norm.
	reduceAddNorm(normed, residual, src, weight kernels.Tensor, eps float32) error
	// Close frees the end's memory and mappings, also when peers have died.
	Close() error
}

// path is how data goes from one GPU to another.
type path uint8

const (
	peerPath path = iota // into the memory of the other GPU
	hostPath             // through pinned host memory
)

var pathNames = [...]string{"peer memory", "host memory"}

func (p path) String() string { return pathNames[p] }

// Device is the name of the segment that ranks on GPUs share besides Slabs.
const Device = "device"

// The segment: one control block a path, then the host path's outboxes.
const (
	exchangeBytes = 2 << 20 // largest payload of one launch
	controlStride = 4096
	hostOff       = 2 * controlStride
)

// DeviceBytes is the size of the segment Device of a group.
func DeviceBytes(ranks int) int { return hostOff + cuda.HostBytes(ranks, exchangeBytes) }

// control is the control block of a path.
func control(segment []byte, p path) []byte {
	return segment[int(p)*controlStride:][:cuda.ControlBytes]
}

// abortDevices ends every wait of GPUs in a segment's group.
func abortDevices(segment []byte) {
	cuda.Abort(control(segment, peerPath))
	cuda.Abort(control(segment, hostPath))
}
