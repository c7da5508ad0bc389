package actors

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/octet-run/octet/actors/board"
	"github.com/octet-run/octet/actors/link"
	"github.com/octet-run/octet/actors/process"
	"github.com/octet-run/octet/faults"
	"github.com/octet-run/octet/internal/shm"
)

// supervisorAddress and rankAddress are the processes' names in PIDs.
const supervisorAddress = "supervisor"

func rankAddress(rank int) string { return "rank/" + strconv.Itoa(rank) }

// handoff is what a rank process is told of an epoch, at birth and whenever it
// outlives one. Its text, in the process's arguments and over the succession, is
// "rank=3,ranks=8,epoch=2,board=4,link=5,slabs=6": after the first three, names of
// files and their descriptors, or the order in which they came.
type handoff struct {
	role  string // empty for a rank that serves, else see bench.go
	rank  int
	ranks int
	epoch uint32
	fresh bool // see Inherited.Fresh
	// fds are the descriptors by segment name.
	fds map[string]int
}

// The segments that every rank gets. Others are the engine's.
const (
	boardSegment = "board"
	linkSegment  = "link"
)

// successionFile is what else it gets at birth: its end of the succession.
const successionFile = "succession"

// String is the text form.
func (h handoff) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "rank=%d,ranks=%d,epoch=%d", h.rank, h.ranks, h.epoch)
	if h.role != "" {
		fmt.Fprintf(&b, ",role=%s", h.role)
	}
	if h.fresh {
		b.WriteString(",fresh=1")
	}
	for _, name := range slices.Sorted(maps.Keys(h.fds)) {
		fmt.Fprintf(&b, ",%s=%d", name, h.fds[name])
	}
	return b.String()
}

func parseHandoff(spec string) (handoff, error) {
	h := handoff{rank: -1, fds: map[string]int{}}
	for field := range strings.SplitSeq(spec, ",") {
		name, value, ok := strings.Cut(field, "=")
		if !ok || name == "" {
			return h, fmt.Errorf("inherited files %q: %q is not name=value", spec, field)
		}
		if name == "role" {
			h.role = value
			continue
		}
		n, err := strconv.ParseUint(value, 10, 31)
		if err != nil {
			return h, fmt.Errorf("inherited files %q: %s is %q, want a number", spec, name, value)
		}
		switch name {
		case "rank":
			h.rank = int(n)
		case "ranks":
			h.ranks = int(n)
		case "epoch":
			h.epoch = uint32(n)
		case "fresh":
			h.fresh = n != 0
		default:
			if n <= process.DeathPipeFD || slices.Contains(slices.Collect(maps.Values(h.fds)), int(n)) {
				return h, fmt.Errorf("inherited files %q: %s cannot be descriptor %d", spec, name, n)
			}
			h.fds[name] = int(n)
		}
	}
	_, hasBoard := h.fds[boardSegment]
	if h.rank < 0 || h.rank >= h.ranks || h.epoch == 0 || !hasBoard {
		return h, fmt.Errorf("inherited files %q: want at least a rank below ranks, an epoch and a board", spec)
	}
	return h, nil
}

// Inherited is what a rank process got from its parent: its place in the group,
// and the memory of one epoch after another. Of its methods Seat, Segment and Arm
// are for the engine. Close ends it.
type Inherited struct {
	// Role is empty for a rank that serves; otherwise RunBenchRank knows it.
	Role        string
	Rank, Ranks int
	// Epoch is the one that the memory is of. It changes, and the memory with it,
	// between Successor.Leave and Successor.Rejoin only.
	Epoch uint32
	// Fresh is set in an epoch for which all ranks start. In any other some have loaded
	// before, and may wait for this rank alone.
	Fresh bool

	seat       *board.Seat
	link       *link.End
	segments   map[string]*shm.Segment
	faults     atomic.Pointer[faults.Injector]
	succession *succession // nil for a rank that cannot outlive its epoch
	shared     bool        // the process hosts other ranks, see board.Seat.Shared
	guard      int         // the thread that only sleeps, 0 for none
}

// Inherit reads the parent's handoff, from the argument that Launch.Spec became,
// in a fresh rank process. From here on the process ends with its parent. Every
// descriptor is marked close-on-exec.
func Inherit(spec string) (*Inherited, error) {
	h, err := parseHandoff(spec)
	if err != nil {
		return nil, err
	}
	pipe, err := process.Inherited(process.DeathPipeFD, "death pipe")
	if err != nil {
		return nil, err
	}
	guard, err := process.Guard(pipe)
	if err != nil {
		return nil, err
	}
	files := map[string]*os.File{}
	for name, fd := range h.fds {
		file, err := process.Inherited(fd, name)
		if err != nil {
			return nil, err
		}
		files[name] = file
	}
	return adopt(h, files, guard)
}

// adopt is what files and handoff of a birth make. It takes the files, whatever
// happens.
func adopt(h handoff, files map[string]*os.File, guard int) (*Inherited, error) {
	in := &Inherited{Role: h.role, Rank: h.rank, Ranks: h.ranks, guard: guard}
	if file := files[successionFile]; file != nil {
		delete(files, successionFile)
		var err error
		if in.succession, err = joinSuccession(file); err != nil {
			for _, f := range files {
				_ = f.Close()
			}
			return nil, fmt.Errorf("rank %d: %w", h.rank, err)
		}
	}
	if err := in.take(h, files); err != nil {
		in.Close()
		return nil, err
	}
	return in, nil
}

// take maps the segments of an epoch. It takes the files, whatever happens.
func (in *Inherited) take(h handoff, files map[string]*os.File) error {
	in.Epoch, in.Fresh, in.segments = h.epoch, h.fresh, map[string]*shm.Segment{}
	var failed error
	for name, file := range files {
		var err error
		switch {
		case failed != nil:
			_ = file.Close()
		case name == boardSegment:
			in.seat, err = board.Join(file, h.epoch, h.rank)
		case name == linkSegment:
			in.link, err = link.Join(file, link.Config{}, h.epoch, rankAddress(h.rank), supervisorAddress)
		default:
			in.segments[name], err = shm.Open(file)
		}
		if err != nil {
			failed = fmt.Errorf("rank %d: inherited segment %q: %w", h.rank, name, err)
		}
	}
	if failed != nil {
		return failed
	}
	if in.seat.Ranks() != h.ranks {
		return fmt.Errorf("rank %d: told of %d ranks, but the board has %d seats", h.rank, h.ranks, in.seat.Ranks())
	}
	in.seat.Shared = in.shared
	in.seat.Guarded(in.guard)
	return nil
}

// leave unmaps the epoch's memory and tells the supervisor. Nothing of it may be
// in use.
func (in *Inherited) leave() error {
	in.unmap()
	if err := in.succession.leave(in.Epoch); err != nil {
		return fmt.Errorf("rank %d: leave epoch %d: %w", in.Rank, in.Epoch, err)
	}
	return nil
}

// succeed waits for the next epoch and maps its memory.
func (in *Inherited) succeed(ctx context.Context) error {
	h, files, err := in.succession.inherit(ctx)
	if err != nil {
		return fmt.Errorf("rank %d: wait for the epoch after %d: %w", in.Rank, in.Epoch, err)
	}
	if err := successor(h, in); err != nil {
		for _, f := range files {
			_ = f.Close()
		}
		return err
	}
	return in.take(h, files)
}

// Seat is the rank's place on the round board.
func (in *Inherited) Seat() *board.Seat { return in.seat }

// Segment is one of the segments of Config.Segments, nil if there is none of
// that name. It stays Inherited's.
func (in *Inherited) Segment(name string) *shm.Segment { return in.segments[name] }

// Arm sets what strikes at this rank's seat, link and health; nil: nothing. It is
// for the engine's thread.
func (in *Inherited) Arm(injector *faults.Injector) {
	in.seat.Faults = injector
	in.faults.Store(injector)
	if in.link != nil {
		in.link.Arm(injector)
	}
}

// Close unmaps everything. Nothing of it may be in use.
func (in *Inherited) Close() {
	in.unmap()
	if in.succession != nil {
		in.succession.close()
	}
}

func (in *Inherited) unmap() {
	in.faults.Store(nil) // their ledger may be one of the segments
	if in.link != nil {
		in.link.Close()
		_ = in.link.Release()
	}
	if in.seat != nil {
		_ = in.seat.Close()
	}
	for _, s := range in.segments {
		if s != nil {
			_ = s.Close()
		}
	}
	in.link, in.seat, in.segments = nil, nil, nil
}
