package actors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/octet-run/octet/actors/board"
	"github.com/octet-run/octet/actors/link"
	"github.com/octet-run/octet/actors/process"
	"github.com/octet-run/octet/faults"
	"github.com/octet-run/octet/internal/shm"
)

// formation is what one epoch of a group holds: its shared memory, and the watch
// over its ranks.
type formation struct {
	epoch    uint32
	board    *board.Board
	segments map[string]*shm.Segment
	links    []*shm.Segment
	ends     []*link.End
	fresh    bool // see Inherited.Fresh

	// seq is the number of the last round; inRound is set while one runs.
	seq     uint64
	inRound atomic.Bool
	// draining is set when ranks are expected to leave.
	draining atomic.Bool

	// cause is why the epoch ended; broken closes when it is set.
	cause  *RankError
	broken chan struct{}

	watch *watch
}

// newFormation makes the memory of an epoch.
func newFormation(c *Config, epoch uint32) (*formation, error) {
	f := &formation{epoch: epoch, broken: make(chan struct{})}
	err := faults.Strike(c.Faults.Point(faults.GroupForm, faults.Where{}))
	if err == nil {
		err = f.allocate(c)
	}
	if err != nil {
		f.release()
		return nil, fmt.Errorf("shared memory of epoch %d: %w", epoch, err)
	}
	return f, nil
}

func (f *formation) allocate(c *Config) error {
	var err error
	f.board, err = board.Create(board.Config{
		Epoch: f.epoch, Ranks: c.Ranks, RoundBytes: c.RoundBytes, ResultBytes: c.ResultBytes, Spin: c.Spin,
	})
	if err != nil {
		return err
	}
	_, f.board.Shared = c.Launcher.(InProcess)
	f.board.Faults = c.Faults
	if c.Segments != nil {
		if f.segments, err = c.Segments(f.epoch); err != nil {
			return err
		}
	}
	for _, reserved := range []string{boardSegment, linkSegment, "rank", "ranks", "epoch", "role", "fresh"} {
		if f.segments[reserved] != nil {
			return fmt.Errorf("a segment cannot be called %q", reserved)
		}
	}
	for r := range c.Ranks {
		segment, err := link.Create(link.Config{})
		if err != nil {
			return err
		}
		f.links = append(f.links, segment)
		end, err := link.Open(segment, link.Config{}, f.epoch, supervisorAddress, rankAddress(r), true)
		if err != nil {
			return err
		}
		end.Arm(c.Faults)
		f.ends = append(f.ends, end)
	}
	return nil
}

// handed is the segments that a rank gets.
func (f *formation) handed(rank int) map[string]*shm.Segment {
	all := map[string]*shm.Segment{boardSegment: f.board.Segment(), linkSegment: f.links[rank]}
	for name, s := range f.segments {
		all[name] = s
	}
	return all
}

// release unmaps everything. No rank and no round may be left.
func (f *formation) release() {
	if f.board != nil {
		_ = f.board.Close()
	}
	for _, e := range f.ends {
		e.Close()
		_ = e.Release()
	}
	for _, s := range f.links {
		_ = s.Close()
	}
	for _, s := range f.segments {
		_ = s.Close()
	}
}

// explain records why the epoch ended, for those who wait to hear it.
func (f *formation) explain(cause *RankError) {
	f.cause = cause
	close(f.broken)
}

// explained waits for somebody to say why the epoch ended, for a bounded time: a
// bystander may be heard of before the rank at fault.
func (f *formation) explained() bool { return f.explainedWithin(explainWithin) }

func (f *formation) explainedWithin(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-f.broken:
		return true
	case <-timer.C:
		return false
	}
}

// explainWithin covers reading the last words of a dead process on a busy machine.
const explainWithin = 5 * time.Second

// dieWithin is how long a process may take to end once there is a sign that it will. It is
// less than explainWithin, lest one of those who wait for the cause is blamed.
const dieWithin = explainWithin / 2

// drain lets the ranks leave after the round in progress.
func (f *formation) drain() {
	f.draining.Store(true)
	f.board.Drain()
}

// watch looks after ranks while no round does: while they load and while they idle.
type watch struct {
	f      *formation
	config *Config
	pid    func(rank int) int
	lost   func(*RankError)

	cancel context.CancelFunc
	done   sync.WaitGroup

	mu       sync.Mutex
	serving  bool
	begun    time.Time
	moved    []time.Time // when each rank last showed a sign of life
	beats    []uint64
	delays   []board.Delays // of those that have been silent for long
	looked   time.Time
	halted   []time.Time // since when each has been seen stopped by a signal
	loaded   []bool
	rejoins  []bool // has its weights already
	reported bool
}

// calmFactor is how many stalls a rank may be silent for where nobody waits for its
// answer: idle, or on its way from one epoch to the next. A busy machine keeps a
// rank for a while that is in good health, and ending an epoch costs more than
// waiting. A rank that is stopped by a signal is lost after one, in loading too.
const calmFactor = 8

// watchEvery is how often it looks.
const watchEvery = 20 * time.Millisecond

// startWatch begins the watch. The ranks in start have everything to load.
func (f *formation) startWatch(c *Config, start []int, pid func(rank int) int, lost func(*RankError)) {
	ctx, cancel := context.WithCancel(context.Background())
	now := time.Now()
	w := &watch{
		f: f, config: c, pid: pid, lost: lost, cancel: cancel, begun: now,
		moved: make([]time.Time, c.Ranks), beats: make([]uint64, c.Ranks), delays: make([]board.Delays, c.Ranks),
		halted: make([]time.Time, c.Ranks), loaded: make([]bool, c.Ranks), rejoins: make([]bool, c.Ranks),
	}
	for r := range w.moved {
		w.moved[r], w.rejoins[r] = now, !slices.Contains(start, r)
	}
	f.watch = w
	w.done.Go(func() {
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				w.look(time.Now())
			}
		}
	})
}

func (w *watch) stop() {
	w.cancel()
	w.done.Wait()
}

// progress notes that a loading rank moved, and whether it is done.
func (w *watch) progress(rank int, done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.moved[rank], w.delays[rank] = time.Now(), nil
	w.loaded[rank] = w.loaded[rank] || done
}

// serve switches from loading to idling.
func (w *watch) serve() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.serving = true
}

// look reports the first rank that is overdue, once.
func (w *watch) look(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if gap := now.Sub(w.looked) - board.GapLimit; gap > 0 && !w.looked.IsZero() {
		for r := range w.moved {
			w.moved[r], w.halted[r] = w.moved[r].Add(gap), time.Time{}
		}
	}
	w.looked = now
	cause := w.overdue(now)
	if cause != nil && !w.reported {
		w.reported = true
		w.lost(cause)
	}
}

// silent reports whether a rank has given no sign of life for limit, less the time
// for which it was kept from running, or is stopped while idle. Its delay is
// measured from a quarter of the shortest limit on, and read where it may decide: it
// takes several files of every thread.
func (w *watch) silent(rank int, limit time.Duration, now time.Time) bool {
	first := limit
	if w.serving {
		first = w.config.Stall
	}
	silent := now.Sub(w.moved[rank])
	if silent >= first/4 && w.delays[rank] == nil {
		w.delays[rank] = process.WatchDelays(w.pid(rank), w.f.board.Thread(rank), now)
		w.moved[rank] = now.Add(-first / 4) // this side may have been kept as well
		return false
	}
	if silent < first {
		return false
	}
	held, _, stopped := w.delays[rank].Held(now)
	if w.serving { // LoadTimeout bounds the rest
		held = min(held, board.ExcuseLimit)
	}
	return w.serving && stopped || silent-held >= limit
}

// halt is for how long a rank has been stopped by a signal: no load takes that long,
// and one that has loaded need not move.
func (w *watch) halt(rank int, now time.Time) time.Duration {
	switch {
	case !process.Stopped(w.pid(rank)):
		w.halted[rank] = time.Time{}
		return 0
	case w.halted[rank].IsZero():
		w.halted[rank] = now
	}
	return now.Sub(w.halted[rank])
}

// patience is how long a rank may be silent in its present state.
func (w *watch) patience(rank int) (limit time.Duration, reason string) {
	switch {
	case w.serving:
		return calmFactor * w.config.Stall, "gave no sign of life for %v while idle"
	case w.rejoins[rank]:
		return calmFactor * w.config.Stall, "did not rejoin within %v"
	default:
		return w.config.LoadStall, "made no progress in loading for %v"
	}
}

func (w *watch) overdue(now time.Time) *RankError {
	var abort *shm.AbortError
	if errors.As(w.f.board.AbortErr(), &abort) && abort.Reason != shm.Died {
		return blameAbort(w.f.epoch, abort)
	}
	busy := w.f.inRound.Load()
	for r := range w.moved {
		if beats := w.f.board.Beats(r); beats != w.beats[r] || busy {
			w.beats[r], w.moved[r], w.delays[r] = beats, now, nil
		}
	}
	for r := range w.moved {
		if !w.serving && w.halt(r, now) >= w.config.Stall {
			return &RankError{Epoch: w.f.epoch, Rank: r, Reason: "does not get ready"}
		}
		if w.loaded[r] && !w.serving {
			continue // waits for the others
		}
		if limit, reason := w.patience(r); w.silent(r, limit, now) {
			silence := now.Sub(w.moved[r]).Round(time.Millisecond)
			return &RankError{Epoch: w.f.epoch, Rank: r, Reason: fmt.Sprintf(reason, silence)}
		}
		if !w.serving && now.Sub(w.begun) >= w.config.LoadTimeout {
			return &RankError{Epoch: w.f.epoch, Rank: r, Reason: fmt.Sprintf("was not ready within %v", w.config.LoadTimeout)}
		}
	}
	return nil
}
