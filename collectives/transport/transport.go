package transport

import (
	"fmt"
	"time"

	"github.com/octet-run/octet/internal/shm"
)

// MaxRanks is the largest group.
const MaxRanks = 8

// Tags is how many flags there are from each rank to each other: the signals that
// one operation may send along one directed pair.
const Tags = 16

// Region is a kind of buffer. Each has two copies, used by even and odd operations.
type Region uint8

const (
	// Partial is a rank's own contribution, written in place by its producer.
	Partial Region = iota
	// Result is a rank's own result. Peers may write into it.
	Result
	// Normed is a rank's own normed rows.
	Normed
	// Scratch is a rank's own: partial sums, and what it has peers copy.
	Scratch
	// Inbox is where one peer (the second index) puts data for a rank.
	Inbox
	// Common is one result for the whole group.
	Common
	// CommonNormed is the normed rows that go with Common in the fused form.
	CommonNormed
	// CommonResidual is one residual for the whole group. It has one copy, not two.
	CommonResidual
)

var regionNames = [...]string{"partial", "result", "normed", "scratch", "inbox", "common", "common normed", "common residual"}

// String names the region.
func (r Region) String() string { return regionNames[r] }

// Phase says what a rank was waiting for.
type Phase uint8

// The phases of an operation.
const (
	Arrive   Phase = iota // all ranks enter the operation
	Scatter               // partial chunks reach their owners
	Exchange              // partial sums cross between islands
	Gather                // finished chunks reach everybody
	Reduce                // the last to arrive sums
)

var phaseNames = [...]string{"arrive", "scatter", "exchange", "gather", "reduce"}

// String names the phase.
func (p Phase) String() string { return phaseNames[p] }

// Kind is which operation a rank is in.
type Kind uint32

// The operations.
const (
	Barrier Kind = 1 + iota
	AllReduce
	AllReduceAddNorm
	AllGather
	GatherToRoot
	Broadcast
)

var kindNames = [...]string{"nothing", "barrier", "all-reduce", "all-reduce + add + norm", "all-gather", "gather to root", "broadcast"}

// String names the operation.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("operation kind %d", uint32(k))
}

// Descriptor says which operation a rank is in. Ranks in step post equal ones.
type Descriptor struct {
	Kind  Kind
	Rows  uint32
	Width uint32
	Hash  uint64 // rolling hash of all operations of the rank, this one included
}

// String shows the operation, not the hash.
func (d Descriptor) String() string {
	return fmt.Sprintf("%v of [%d, %d]", d.Kind, d.Rows, d.Width)
}

// Transport is one rank's access to its group. See the package comment for the
// rules of flags and buffers.
type Transport interface {
	Rank() int
	Ranks() int
	// FirstOp is the number of the epoch's first operation.
	FirstOp() uint32
	// Capacity is the number of elements in each buffer.
	Capacity() int
	// Memory is a buffer of operation op. peer matters for an Inbox only.
	Memory(region Region, owner, peer int, op uint32) []float32

	// Post enters op: it publishes d to all ranks.
	Post(op uint32, d Descriptor)
	// AwaitPost waits until rank from has entered op and compares descriptors.
	AwaitPost(from int, op uint32) error
	// Check compares the descriptors of all ranks that have entered op.
	Check(op uint32) error
	// Signal raises flag tag of op from this rank to another.
	Signal(to, tag int, op uint32)
	// Await waits for flag tag of op from a rank.
	Await(from, tag int, op uint32, phase Phase) error
	// Complete records that this rank is through with op.
	Complete(op uint32)
	// Skew is how long, in all, this rank has waited for others to enter operations:
	// not for their data.
	Skew() time.Duration

	// Abort ends the epoch for all ranks because of rank.
	Abort(rank int, reason shm.Reason)
	// Err is not nil once the epoch was aborted.
	Err() error
}

// Rendezvous is what a transport offers besides where all ranks share one
// coherent memory: a counter of arrivals and chunks of work that any rank may take.
type Rendezvous interface {
	// Arrive counts this rank into op and reports whether it is the last.
	Arrive(op uint32) (last bool)
	// Open offers the chunks of op's work to all ranks. The last to arrive calls it.
	// It fails if the ranks do not agree on op or one was counted that is not in it.
	Open(op uint32) error
	// Claim takes a chunk of op, of chunks in all, if one is left.
	Claim(op uint32, chunks int) (chunk int, ok bool)
	// Finish records that a claimed chunk is done. With the last, everybody is woken.
	Finish(op uint32, chunks int)
	// AwaitFinish waits until all chunks are done. While it polls it calls help,
	// which may claim chunks, and reports whether it did.
	AwaitFinish(op uint32, help func() bool) error
}
