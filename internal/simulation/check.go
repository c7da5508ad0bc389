package simulation

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/octet-run/octet/actors/lifecycle"
	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/coordinator"
	"github.com/octet-run/octet/faults"
)

const (
	// noticeLimit is how long the death of a process may go unnoticed.
	noticeLimit = 20 * time.Millisecond
	// answerLimit is how long the coordinator may wait for a round of an epoch that
	// has ended.
	answerLimit = 20 * time.Millisecond
)

// forms checks that an epoch begins when nothing of the last is left.
func (w *world) forms(g *group) {
	if g.f != nil {
		w.breach("epoch %d forms while epoch %d is there", g.life.Epoch(), g.f.epoch)
	}
	w.report.Epochs++
}

// serves checks that a group which serves is whole.
func (w *world) serves(g *group) {
	for _, p := range g.f.ranks {
		if !p.loaded {
			w.breach("epoch %d serves though rank %d has not loaded", g.f.epoch, p.rank)
		}
	}
	w.incarnationOf(g).served = true
}

func (w *world) incarnationOf(g *group) *incarnation {
	if w.server.group == g {
		return w.server
	}
	return &incarnation{w: w, group: g}
}

// breaks checks that an epoch ends for a reason of its own, soon after it.
func (w *world) breaks(g *group, cause *lifecycle.RankError) {
	if cause.Epoch != g.life.Epoch() {
		w.breach("epoch %d is ended by a loss in epoch %d", g.life.Epoch(), cause.Epoch)
	}
	if w.allStruck() == w.blamed {
		w.breach("epoch %d ends though nothing has struck since the last one ended: %v", cause.Epoch, cause)
	}
	w.blamed = w.allStruck()
	if guilty := w.onlyGuilty(); guilty >= 0 && cause.Rank != guilty {
		w.breach("rank %d is blamed for what rank %d did: %v", cause.Rank, guilty, cause)
	}
	for _, p := range g.f.ranks {
		if p.dead && w.clock.now-p.diedAt > noticeLimit {
			w.breach("the death of rank %d in epoch %d is noticed after %v", p.rank, cause.Epoch, w.clock.now-p.diedAt)
		}
	}
}

// onlyGuilty is the rank that must be blamed, where one fault alone has struck and
// it has one; else -1.
func (w *world) onlyGuilty() int {
	struck := slices.Clone(w.struck)
	for r := range w.wire {
		for _, e := range slices.Concat(w.wire[r].Fired(), w.inner[r].Fired()) {
			struck = append(struck, e.Fault)
		}
	}
	if len(struck) != 1 || len(w.boardFaults.Fired()) > 0 {
		return -1
	}
	switch f := struck[0]; f.Do {
	case faults.Kill, faults.Stop, faults.Abort, faults.Exit, faults.Panic, faults.Hang:
		return f.Rank
	case faults.Flip, faults.Tear, faults.Stale, faults.Drop:
		// Of two ranks that differ nobody can say which is right.
		if f.At == faults.RankPost && w.plan.ranks > 2 {
			return f.Rank
		}
	}
	return -1
}

// releases checks that memory is freed when nobody can touch it any more.
func (w *world) releases(g *group) {
	for _, p := range g.f.ranks {
		if !p.dead {
			w.breach("the memory of epoch %d is freed while rank %d lives", g.f.epoch, p.rank)
		}
	}
	if n := w.incarnationOf(g); g.life.Phase() == lifecycle.Waiting {
		w.spend(n)
	}
}

// spend counts a restart against the budget.
func (w *world) spend(n *incarnation) {
	if left := w.plan.restart.Max - w.recent(n); left <= 0 {
		w.breach("the group starts again though its budget of %d is used up", w.plan.restart.Max)
	}
	n.restarts = append(n.restarts, w.clock.now)
}

func (w *world) recent(n *incarnation) (count int) {
	for _, at := range n.restarts {
		if w.clock.now-at < w.plan.restart.Window {
			count++
		}
	}
	return count
}

// finishes checks that a group gives up only when it must.
func (w *world) finishes(g *group, err error) {
	n := w.incarnationOf(g)
	if !errors.Is(err, lifecycle.ErrStopped) && n.served && w.recent(n) < w.plan.restart.Max {
		w.breach("the group gives up after %d of %d restarts: %v", w.recent(n), w.plan.restart.Max, err)
	}
}

// run is how often a request has begun anew: in how many epochs, up to which.
type run struct {
	epochs int
	last   uint32
}

// runsAgain checks that a round has only requests that may still be replayed.
func (w *world) runsAgain(n *incarnation, next *round.Round) {
	for i := range next.Entries {
		e := &next.Entries[i]
		r := n.runs[e.Request]
		if e.Kind == round.Release || r.last == next.Epoch {
			continue
		}
		n.runs[e.Request] = run{r.epochs + 1, next.Epoch}
		if r.epochs > w.plan.replays {
			w.breach("request %d runs in epoch %d after %d replays, it may be replayed %d times", e.Request, next.Epoch, r.epochs, w.plan.replays)
		}
	}
}

// spoilers are faults that no round survives in which they strike.
var spoilers = map[faults.Point][]faults.Verb{
	faults.RankPost:         {faults.Drop, faults.Flip},
	faults.CollectiveArrive: {faults.Drop, faults.Stale},
}

// accepted checks a round that the group passes on.
func (w *world) accepted(f *formation, result *round.Result) {
	w.report.Rounds++
	if free := w.server.coordinator.Stats().FreeBlocks; free < 0 || free > w.plan.blocks {
		w.breach("%d of %d blocks are free", free, w.plan.blocks)
	}
	if result.Epoch != f.epoch || result.Seq != f.seq {
		w.breach("round %d of epoch %d is answered by round %d of epoch %d", f.seq, f.epoch, result.Seq, result.Epoch)
	}
	for i := range result.Outcomes {
		w.note("round %d: %d %v %s", f.seq, result.Outcomes[i].Slot, result.Outcomes[i].Tokens, result.Outcomes[i].Error)
	}
	for r := range w.wire {
		for _, e := range w.wire[r].Fired()[w.fired[r]:] {
			if slices.Contains(spoilers[e.Fault.At], e.Fault.Do) {
				w.breach("round %d of epoch %d is accepted in spite of: %s at %s", f.seq, f.epoch, e.Fault.Do, e.Fault.At)
			}
		}
	}
}

// ends checks how a request has ended.
func (w *world) ends(c *client) {
	got, finish := c.got, c.finish
	if c.broken != "" {
		w.breach("%s: %s", c.name, c.broken)
	}
	if n := len(got); n > len(c.want) || !slices.Equal(got, c.want[:n]) {
		w.breach("%s got %v, which is not the beginning of %v", c.name, got, c.want)
	}
	err := c.err
	if finish != nil {
		err = finish.Err
		if finish.Replays > w.plan.replays {
			w.breach("%s was replayed %d times, it may be %d times", c.name, finish.Replays, w.plan.replays)
		}
	}
	switch {
	case finish != nil && (finish.Reason == coordinator.FinishStop || finish.Reason == coordinator.FinishLength):
		w.report.Completed++
		if len(got) != len(c.want) {
			w.breach("%s is complete with %d of %d tokens", c.name, len(got), len(c.want))
		}
		if finish.GeneratedTokens != len(got) {
			w.breach("%s: %d tokens are counted, %d were sent", c.name, finish.GeneratedTokens, len(got))
		}
	case !w.excused(c, finish, err):
		w.breach("%s ends without reason after %d of %d tokens: %v, %v", c.name, len(got), len(c.want), finish, err)
	default:
		w.report.Refused++
	}
	w.note("%s ends with %d tokens: %v", c.name, len(got), err)
}

// excused says whether something that happened explains how a request ended early.
func (w *world) excused(c *client, finish *coordinator.Finish, err error) bool {
	var group *coordinator.GroupError
	var sequence *coordinator.SequenceError
	switch {
	case finish != nil && finish.Reason == coordinator.FinishDeadline, errors.Is(err, context.DeadlineExceeded):
		return c.limit > 0 && time.Since(w.clock.start)-c.began >= c.limit
	case errors.As(err, &group) && group.Replays > 0:
		return group.Replays == w.plan.replays
	case errors.As(err, &group):
		return w.server.group.Err() != nil
	case errors.As(err, &sequence):
		return w.hasStruck(faults.NaN)
	case errors.Is(err, errDisk):
		return w.hasStruck(faults.Fail)
	}
	return false
}

func (w *world) hasStruck(do faults.Verb) bool {
	is := func(f faults.Fault) bool { return f.Do == do }
	if slices.ContainsFunc(w.struck, is) {
		return true
	}
	for r := range w.wire {
		for _, e := range slices.Concat(w.wire[r].Fired(), w.inner[r].Fired()) {
			if is(e.Fault) {
				return true
			}
		}
	}
	return false
}

// rest lets everything come to rest and checks that nothing is held.
func (w *world) rest() {
	until := w.clock.now + restAtMost
	w.loop(func() bool {
		phase := w.server.group.life.Phase()
		return w.clock.now >= until && !w.waiting && !w.server.dead.Load() && (phase == lifecycle.Serving || phase == lifecycle.Closed)
	}, restLimit+2*loadLimit)
	w.clock.settle()
	n := w.server
	stats := n.coordinator.Stats()
	if stats.Running+stats.Waiting != 0 || stats.FreeBlocks != w.plan.blocks {
		w.breach("at rest %d requests run, %d wait, %d of %d blocks are free", stats.Running, stats.Waiting, stats.FreeBlocks, w.plan.blocks)
	}
	if n.group.Epoch() == 0 {
		return
	}
	for _, p := range n.group.f.ranks {
		if err := p.engine.AtRest(); err != nil {
			w.breach("at rest %v", err)
		}
	}
}
