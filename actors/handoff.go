package actors

import (
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

// handoff is what a rank process is told at birth. Its text, in the process's
// arguments, is "rank=3,ranks=8,epoch=2,board=4,link=5,slabs=6": after the first
// three, names of segments and their descriptors.
type handoff struct {
	role  string // empty for a rank that serves, else see bench.go
	rank  int
	ranks int
	epoch uint32
	// fds are the descriptors by segment name.
	fds map[string]int
}

// The segments that every rank gets. Others are the engine's.
const (
	boardSegment = "board"
	linkSegment  = "link"
)

// String is the text form.
func (h handoff) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "rank=%d,ranks=%d,epoch=%d", h.rank, h.ranks, h.epoch)
	if h.role != "" {
		fmt.Fprintf(&b, ",role=%s", h.role)
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

// Inherited is what a rank process got from its parent. One of its methods may
// be used by the engine: Seat, Segment. Close ends it.
type Inherited struct {
	// Role is empty for a rank that serves; otherwise RunBenchRank knows it.
	Role        string
	Rank, Ranks int
	Epoch       uint32

	seat     *board.Seat
	link     *link.End
	segments map[string]*shm.Segment
	faults   atomic.Pointer[faults.Injector]
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
	if err := process.Guard(pipe); err != nil {
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
	return adopt(h, files)
}

// adopt maps the segments. It takes the files, whatever happens.
func adopt(h handoff, files map[string]*os.File) (*Inherited, error) {
	in := &Inherited{Role: h.role, Rank: h.rank, Ranks: h.ranks, Epoch: h.epoch, segments: map[string]*shm.Segment{}}
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
	if failed == nil && in.seat.Ranks() != h.ranks {
		failed = fmt.Errorf("rank %d: told of %d ranks, but the board has %d seats", h.rank, h.ranks, in.seat.Ranks())
	}
	if failed != nil {
		in.Close()
		return nil, failed
	}
	return in, nil
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
}
