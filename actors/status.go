package actors

import (
	"fmt"
	"slices"
	"time"
)

// RankState is what a rank is doing.
type RankState string

// The states of a rank.
const (
	StateStarting RankState = "starting"
	StateLoading  RankState = "loading"
	StateReady    RankState = "ready"
	// StateSlow: ready, but its own work takes markedly longer than the others'.
	StateSlow RankState = "slow"
	StateDown RankState = "down"
)

// RankStatus is the state of one rank.
type RankStatus struct {
	Rank   int
	PID    int
	Device string
	State  RankState
	// Busy and Wait are averages over the last rounds: time at work, and time
	// waiting for other ranks, as far as the engine tells (Seat.EndWait).
	Busy, Wait time.Duration
	// Restarts counts processes after the first: an epoch that the rank outlives adds
	// none. Lost counts the epochs that this rank ended, LastError says how.
	Restarts  int
	Lost      int
	LastError string
	// DoneBytes of TotalBytes are loaded.
	DoneBytes, TotalBytes uint64

	started bool // once, at least
}

// Status is the state of a group.
type Status struct {
	Phase Phase
	// Epoch is the latest, serving or not.
	Epoch uint32
	// Restarts counts the epochs after the first.
	Restarts int
	Ranks    []RankStatus
	// RoundP50 and RoundP99 are times of the last rounds, as the caller of Do saw them.
	RoundP50, RoundP99 time.Duration

	silence time.Duration // of the slow rounds
	cause   *RankError
}

// Cause is what ended the last epoch, nil if none has ended.
func (s Status) Cause() error {
	if s.cause == nil {
		return nil
	}
	return s.cause
}

// Status is a copy of the group's state.
func (g *Group) Status() Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.status
	s.Ranks = slices.Clone(s.Ranks)
	markSlow(s.Ranks)
	return s
}

// A rank is slow when its work takes half as long again as the median's, and
// enough to matter.
const (
	slowFactor = 1.5
	slowMargin = 5 * time.Millisecond
)

func markSlow(ranks []RankStatus) {
	busy := make([]time.Duration, len(ranks))
	for r := range ranks {
		busy[r] = ranks[r].Busy
	}
	slices.Sort(busy)
	median := busy[(len(busy)-1)/2]
	for r := range ranks {
		limit := max(time.Duration(slowFactor*float64(median)), median+slowMargin)
		if ranks[r].State == StateReady && ranks[r].Busy > limit {
			ranks[r].State = StateSlow
		}
	}
}

// averageOver is about how many rounds the averages look back.
const averageOver = 4

// note takes the ranks' times of a finished round into their averages.
func (g *Group) note(f *formation) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.status.RoundP50, g.status.RoundP99 = g.times.whole.p50, g.times.whole.p99
	g.status.silence = g.times.slowest()
	for r := range g.status.Ranks {
		s := &g.status.Ranks[r]
		busy, wait := f.board.Times(r)
		if f.seq == 1 {
			s.Busy, s.Wait = busy, wait
			continue
		}
		s.Busy += (busy - s.Busy) / averageOver
		s.Wait += (wait - s.Wait) / averageOver
	}
}

// setPhase records a phase, wakes who waits for one, and emits the event.
func (g *Group) setPhase(p Phase, e Event) {
	g.mu.Lock()
	g.status.Phase = p
	if p != Serving {
		g.current = nil
	}
	close(g.changed)
	g.changed = make(chan struct{})
	g.mu.Unlock()
	g.emit(e)
}

// forming records an epoch that begins with the start of some ranks.
func (g *Group) forming(epoch uint32, start []int) {
	g.mu.Lock()
	g.status.Epoch = epoch
	g.status.Restarts = int(epoch - 1)
	for _, r := range start {
		s := &g.status.Ranks[r]
		s.State, s.PID, s.DoneBytes, s.TotalBytes = StateStarting, 0, 0, 0
	}
	g.mu.Unlock()
	message := fmt.Sprintf("starting %d ranks", len(start))
	if rest := g.config.Ranks - len(start); rest > 0 {
		message = fmt.Sprintf("starting ranks %v, %d others rejoin", start, rest)
	}
	g.setPhase(Forming, Event{Kind: GroupForms, Epoch: epoch, Rank: -1, Message: message})
}

func (g *Group) serve(f *formation) {
	g.mu.Lock()
	g.current, g.suspended = f, nil
	g.mu.Unlock()
	g.setPhase(Serving, Event{Kind: GroupServes, Epoch: f.epoch, Rank: -1, Message: "all ranks are ready"})
}

// suspend lets no more rounds into an epoch of which a rank is gone. Why it is, and
// so the end of the epoch, follows.
func (g *Group) suspend(f *formation) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.current != f {
		return
	}
	g.current, g.suspended = nil, f
	g.status.Phase = Broken
	close(g.changed)
	g.changed = make(chan struct{})
}

func (g *Group) broken(cause *RankError) {
	g.mu.Lock()
	g.status.cause, g.suspended = cause, nil
	if cause.Rank >= 0 {
		s := &g.status.Ranks[cause.Rank]
		s.Lost++
		s.LastError = cause.Error()
	}
	g.mu.Unlock()
	g.emit(Event{Time: cause.Noticed, Kind: RankLost, Epoch: cause.Epoch, Rank: cause.Rank, Message: cause.Error()})
	g.setPhase(Broken, Event{Kind: GroupBreaks, Epoch: cause.Epoch, Rank: -1, Message: cause.Error()})
}

// close ends the group for good. The first reason stays.
func (g *Group) close(err error) {
	g.mu.Lock()
	if g.err != nil {
		g.mu.Unlock()
		return
	}
	g.err = err
	epoch := g.status.Epoch
	g.mu.Unlock()
	g.setPhase(Closed, Event{Kind: GroupCloses, Epoch: epoch, Rank: -1, Message: err.Error()})
	close(g.closed)
}

func (g *Group) started(life *incarnation, epoch uint32) {
	g.mu.Lock()
	g.procs[life.rank] = life.process
	s := &g.status.Ranks[life.rank]
	if s.started {
		s.Restarts++
	}
	s.PID, s.State, s.started = life.process.PID(), StateLoading, true
	g.mu.Unlock()
	g.emit(Event{Kind: RankStarted, Epoch: epoch, Rank: life.rank, Message: fmt.Sprintf("pid %d", life.process.PID())})
}

func (g *Group) rejoins(life *incarnation, epoch uint32) {
	g.mu.Lock()
	g.status.Ranks[life.rank].State = StateLoading
	g.mu.Unlock()
	g.emit(Event{Kind: RankRejoins, Epoch: epoch, Rank: life.rank, Message: fmt.Sprintf("pid %d", life.process.PID())})
}

// leaveTimeout is how long ranks may take to leave an epoch: they may be in the
// middle of a pass.
func (g *Group) leaveTimeout() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(g.config.LeaveTimeout, 2*g.status.silence)
}

func (g *Group) loading(m rankLoading) {
	g.mu.Lock()
	s := &g.status.Ranks[m.rank]
	s.DoneBytes, s.TotalBytes = m.done, m.total
	g.mu.Unlock()
	g.emit(Event{Kind: RankLoading, Epoch: m.epoch, Rank: m.rank, Done: m.done, Total: m.total})
}

func (g *Group) ready(m rankReady) {
	g.mu.Lock()
	s := &g.status.Ranks[m.rank]
	s.State, s.Device = StateReady, m.device
	g.mu.Unlock()
	g.emit(Event{Kind: RankReady, Epoch: m.epoch, Rank: m.rank, Message: m.device})
}

func (g *Group) gone(rank int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.procs[rank] = nil
	g.status.Ranks[rank].State = StateDown
}
