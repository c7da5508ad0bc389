package transport

import (
	"unsafe"

	"github.com/octet-run/octet/internal/shm"
)

// Where things lie in the segment. The words first, each in cache lines of its
// own unless one rank writes them all, then the buffers, each on its own pages.
// Pages that nobody touches take no memory.
const (
	line = shm.CacheLine
	page = 4096

	headerOff    = 0 * line // magic, ranks, capacity, first operation, huge pages
	epochOff     = 1 * line
	abortOff     = 2 * line
	arrivalsOff  = 3 * line // epoch<<32 | ranks that have arrived
	finishOff    = 4 * line // flag, then claims and completions
	sleepersOff  = 5 * line // ranks asleep on the finish flag
	windowOff    = 6 * line // the words of a Window
	perRankOff   = 7 * line
	perRankLines = 3

	claimsOff      = finishOff + 8  // see claims
	completionsOff = finishOff + 16 // chunks done
	openedOff      = finishOff + 24 // when the last rank arrived
)

// The lines of one rank.
const (
	postLine    = iota // post flag, two descriptors; written by the rank
	stateLine          // see state; written by the rank
	sleeperLine        // ranks asleep on this post flag; this rank asleep on a signal
)

// A post line is the flag, then the descriptors of even and odd operations: all in
// 64 bytes, so that one miss brings them.
const (
	descriptorOff   = 8
	descriptorBytes = int(unsafe.Sizeof(Descriptor{}))
)

var _ [64 - descriptorOff - 2*descriptorBytes]struct{} // they fit

type layout struct {
	ranks    int
	capacity int // elements per buffer
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }

func (l layout) rankOff(rank, which int) int {
	return perRankOff + (rank*perRankLines+which)*line
}

// signalOff is the flag tag from one rank to another: a line has one writer.
func (l layout) signalOff(from, to, tag int) int {
	pairs := l.rankOff(l.ranks, 0)
	return pairs + (to*l.ranks+from)*roundUp(Tags*8, line) + tag*8
}

// bufferBytes keeps buffers that have whole huge pages on pages of their own.
func (l layout) bufferBytes() int {
	if n := l.capacity * 4; n < shm.HugePage {
		return roundUp(n, page)
	}
	return roundUp(l.capacity*4, shm.HugePage)
}

// The partials and the common buffers come first. All that ranks of one memory do
// in an operation goes on there, so these may lie on huge pages.
func (l layout) hotBytes() int { return 2 * (commonBuffers + l.ranks) * l.bufferBytes() }

const commonBuffers = 3

func (l layout) bufferOff(region Region, owner, peer, parity int) int {
	n := l.ranks
	var index int
	switch region {
	case Common:
		index = 0
	case CommonNormed:
		index = 1
	case CommonResidual:
		index, parity = 2, 0
	case Partial:
		index = commonBuffers + owner
	case Result:
		index = commonBuffers + n + owner
	case Normed:
		index = commonBuffers + 2*n + owner
	case Scratch:
		index = commonBuffers + 3*n + owner
	case Inbox:
		index = commonBuffers + 4*n + owner*n + peer
	}
	return l.buffersOff() + (2*index+parity)*l.bufferBytes()
}

func (l layout) buffersOff() int {
	words := l.signalOff(0, l.ranks, 0)
	if l.hotBytes() < shm.HugePage {
		return roundUp(words, page)
	}
	return roundUp(words, shm.HugePage)
}

func (l layout) size() int {
	buffers := 2 * (commonBuffers + 4*l.ranks + l.ranks*l.ranks)
	return l.buffersOff() + buffers*l.bufferBytes()
}
