package transport

import (
	"fmt"
	"os"
	"unsafe"

	"github.com/octet-run/octet/internal/shm"
)

// Group is the shared segment of a group. The supervisor creates it and hands
// File to every rank; a rank opens it and attaches. Both close what they hold.
type Group struct {
	seg *shm.Segment
	layout
}

const magic = 0x344c4c4f43544f // "OTCOLL4": changes with the layout

// Create makes the segment of a group.
func Create(cfg Config) (*Group, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	l := layout{ranks: cfg.Ranks, capacity: roundUp(cfg.MaxRows*cfg.MaxWidth, 32)}
	seg, err := shm.Create("octet-collectives", l.size())
	if err != nil {
		return nil, err
	}
	g := &Group{seg: seg, layout: l}
	seg.Counter(headerOff).Store(magic)
	seg.Counter(headerOff + 8).Store(uint64(l.ranks))
	seg.Counter(headerOff + 16).Store(uint64(l.capacity))
	g.Reset(cfg.Epoch, cfg.FirstOp)
	if cfg.HugePages && g.backByHugePages() == nil {
		seg.Counter(headerOff + 32).Store(1)
	}
	return g, nil
}

// backByHugePages is an error where the kernel has none for shared memory.
func (g *Group) backByHugePages() error {
	first, size := g.buffersOff(), g.bufferBytes()
	if size < shm.HugePage { // several buffers to a page
		return g.seg.BackByHugePages(first, first+g.hotBytes())
	}
	for off := first; off < first+g.hotBytes(); off += size {
		if err := g.seg.BackByHugePages(off, off+shm.HugePage); err != nil {
			return err
		}
	}
	return nil
}

// HugePagesAvailable reports whether the kernel puts shared memory on huge pages.
func HugePagesAvailable() bool {
	seg, err := shm.Create("octet-huge-page", shm.HugePage)
	if err != nil {
		return false
	}
	defer seg.Close()
	return seg.BackByHugePages(0, shm.HugePage) == nil
}

// HugePages reports whether the group's buffers lie on huge pages.
func (g *Group) HugePages() bool { return g.seg.Counter(headerOff+32).Load() != 0 }

// Open maps the segment behind an inherited file and takes ownership of the file.
func Open(file *os.File) (*Group, error) {
	seg, err := shm.Open(file)
	if err != nil {
		return nil, err
	}
	g, err := Adopt(seg)
	if err != nil {
		_ = seg.Close()
	}
	return g, err
}

// Adopt is the group of a segment that is mapped already. It stays the caller's
// if it is not one; otherwise Close closes it.
func Adopt(seg *shm.Segment) (*Group, error) {
	g := &Group{seg: seg}
	name := seg.File().Name()
	if len(seg.Bytes()) < perRankOff || seg.Counter(headerOff).Load() != magic {
		return nil, fmt.Errorf("shared memory %q is not the segment of a group of this version", name)
	}
	g.layout = layout{
		ranks:    int(seg.Counter(headerOff + 8).Load()),
		capacity: int(seg.Counter(headerOff + 16).Load()),
	}
	if want := g.size(); len(seg.Bytes()) != want {
		return nil, fmt.Errorf("shared memory %q has %d bytes, its header asks for %d", name, len(seg.Bytes()), want)
	}
	return g, nil
}

// Segment is the memory itself, to be handed to ranks.
func (g *Group) Segment() *shm.Segment { return g.seg }

// File is the descriptor that ranks inherit.
func (g *Group) File() *os.File { return g.seg.File() }

// Close unmaps the segment. What was attached through it must not be used after.
func (g *Group) Close() error { return g.seg.Close() }

// Ranks is the number of ranks.
func (g *Group) Ranks() int { return g.ranks }

// Epoch is the group's current epoch.
func (g *Group) Epoch() uint32 { return g.seg.Word(epochOff).Load() }

// Reset begins a new epoch whose first operation is firstOp. No rank of the old
// epoch may be inside an operation: the supervisor aborts it first, and the ranks
// that live attach anew.
func (g *Group) Reset(epoch, firstOp uint32) {
	before := flag(epoch, firstOp-1)
	g.seg.Counter(headerOff + 24).Store(uint64(firstOp))
	for r := range g.ranks {
		g.seg.Counter(g.rankOff(r, postLine)).Store(before)
		g.seg.Counter(g.rankOff(r, stateLine)).Store(state{op: firstOp - 1, what: completed}.pack())
		g.seg.Word(g.rankOff(r, sleeperLine)).Store(0) // one that died asleep counts no more
		g.seg.Word(g.rankOff(r, sleeperLine) + 4).Store(0)
		for to := range g.ranks {
			for tag := range Tags {
				g.seg.Counter(g.signalOff(r, to, tag)).Store(before)
			}
		}
	}
	g.seg.Word(sleepersOff).Store(0)
	g.seg.Counter(arrivalsOff).Store(flag(epoch, 0))
	g.seg.Counter(claimsOff).Store(claims(epoch, firstOp-1, maxChunks, 0))
	g.seg.Counter(completionsOff).Store(0)
	g.seg.Counter(finishOff).Store(before)
	g.seg.Word(epochOff).Store(epoch)
}

// Abort ends the current epoch for all ranks because of rank (-1: none). Their
// operations return an *shm.AbortError at once: those that sleep are woken. It
// reports false if the epoch was aborted before.
func (g *Group) Abort(rank int, reason shm.Reason) bool {
	return g.abort(g.Epoch(), rank, reason)
}

func (g *Group) abort(epoch uint32, rank int, reason shm.Reason) (first bool) {
	if first = g.seg.Abort(abortOff).Raise(epoch, rank, reason); first {
		g.wakeSleepers()
	}
	return first
}

// wakeSleepers wakes every rank that sleeps, whatever flag it waits for. One that
// is about to sleep may miss it: its time slice ends that.
func (g *Group) wakeSleepers() {
	if g.seg.Word(sleepersOff).Load() != 0 {
		g.seg.Counter(finishOff).Low().WakeAll()
	}
	for r := range g.ranks {
		if g.seg.Word(g.rankOff(r, sleeperLine)).Load() != 0 {
			g.seg.Counter(g.rankOff(r, postLine)).Low().WakeAll()
		}
		if g.seg.Word(g.rankOff(r, sleeperLine)+4).Load() == 0 {
			continue
		}
		for from := range g.ranks {
			for tag := range Tags {
				g.seg.Counter(g.signalOff(from, r, tag)).Low().WakeAll()
			}
		}
	}
}

// Err is not nil once the current epoch was aborted.
func (g *Group) Err() error { return g.seg.Abort(abortOff).Err(g.Epoch()) }

// descriptor is a rank's descriptor of even or odd operations.
func (g *Group) descriptor(rank, parity int) *Descriptor {
	off := g.rankOff(rank, postLine) + descriptorOff + parity*descriptorBytes
	return (*Descriptor)(unsafe.Pointer(&g.seg.Bytes()[off]))
}

func flag(epoch, op uint32) uint64 { return uint64(epoch)<<32 | uint64(op) }
