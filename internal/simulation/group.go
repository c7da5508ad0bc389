package simulation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/octet-run/octet/actors"
	"github.com/octet-run/octet/actors/lifecycle"
	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/coordinator"
)

// group is the supervisor: the real state machine, whose effects it carries out
// on simulated processes. To the coordinator it is a coordinator.Group; those
// methods are called from outside, all others are the clock's.
type group struct {
	w    *world
	life *lifecycle.Machine
	f    *formation

	formedAt []time.Duration // each epoch's begin
	brokenAt time.Duration
	// dead says that the process which supervises is gone, and what it would decide
	// with it.
	dead bool

	// asked counts how often the coordinator has asked for the epoch since it had a
	// round run.
	asked atomic.Int64

	mu      sync.Mutex
	current uint32 // the epoch that serves, 0: none
	cause   error  // what ended the last one
	err     error  // why the group is over
	changed chan struct{}
}

func newGroup(w *world) *group {
	g := &group{w: w, changed: make(chan struct{})}
	g.life = lifecycle.New(w.plan.ranks, w.plan.restart)
	return g
}

func (g *group) start() { g.apply(g.life.Start()) }

// The messages to the supervisor.

func (g *group) ready(p *process) {
	p.ready = true
	g.apply(g.life.Ready(p.f.epoch, p.rank, planHash))
}

func (g *group) lost(cause *lifecycle.RankError) { g.apply(g.life.Lost(cause)) }

func (g *group) gone(epoch uint32, rank int) {
	g.apply(g.life.Gone(epoch, rank, g.w.clock.start.Add(g.w.clock.now)))
}

func (g *group) stop() {
	g.apply(g.life.Stop())
	g.w.clock.after(stopGrace, func() {
		if g.life.Phase() == lifecycle.Stopping {
			g.killAll()
		}
	})
}

// askLimit is far more often than anybody asks for the epoch between two rounds.
const askLimit = 100_000

const stopGrace = 500 * time.Millisecond

// apply carries out effects, unless the supervisor is dead.
func (g *group) apply(effects []lifecycle.Effect) {
	for len(effects) > 0 && !g.dead {
		e := effects[0]
		effects = append(effects[1:], g.carryOut(e)...)
	}
}

func (g *group) carryOut(e lifecycle.Effect) []lifecycle.Effect {
	w, epoch := g.w, g.life.Epoch()
	switch e.Kind {
	case lifecycle.Form:
		return g.form()
	case lifecycle.Serve:
		w.note("epoch %d serves", epoch)
		w.serves(g)
		g.set(epoch, nil)
	case lifecycle.Abort:
		cause := g.life.Cause()
		w.note("epoch %d breaks: rank %d", epoch, cause.Rank)
		w.breaks(g, cause)
		g.brokenAt = w.clock.now
		g.f.abort(cause.Rank, 1)
		g.set(0, cause)
		g.f.explain(cause)
		g.killAll()
	case lifecycle.Drain:
		g.set(0, nil)
		g.f.draining = true
		g.f.board.Drain()
		g.f.ring()
	case lifecycle.Release:
		w.releases(g)
		g.f.release()
		g.f = nil
	case lifecycle.Pause:
		w.clock.after(e.Pause, func() { g.apply(g.life.Resumed(epoch)) })
	case lifecycle.Finish:
		w.note("the group is over: %t", errors.Is(e.Err, lifecycle.ErrStopped))
		w.finishes(g, e.Err)
		g.mu.Lock()
		g.err = e.Err
		g.mu.Unlock()
		g.set(0, e.Err)
	}
	return nil
}

func (g *group) form() []lifecycle.Effect {
	w, epoch := g.w, g.life.Epoch()
	w.note("epoch %d forms", epoch)
	w.forms(g)
	g.formedAt = append(g.formedAt, w.clock.now)
	f, err := newFormation(g, epoch)
	if err != nil {
		w.breach("memory of epoch %d: %v", epoch, err)
		return nil
	}
	g.f = f
	w.clock.after(loadLimit, func() {
		for _, p := range f.ranks {
			if !p.ready && f.cause == nil && !f.released {
				f.lost(p, "was not ready in time")
				return
			}
		}
	})
	return nil
}

func (g *group) killAll() {
	for _, p := range g.f.ranks {
		g.w.clock.soon(10*time.Microsecond, 300*time.Microsecond, p.kill)
	}
}

// set publishes the epoch that serves.
func (g *group) set(epoch uint32, cause error) {
	g.mu.Lock()
	g.current = epoch
	if cause != nil {
		g.cause = cause
	}
	close(g.changed)
	g.changed = make(chan struct{})
	g.mu.Unlock()
	g.w.clock.settle()
}

// begin finds the formation for a round and runs it.
func (g *group) begin(c *call) {
	switch f := g.f; {
	case g.dead:
		c.reply(nil, errors.New("the supervisor is gone"))
	case g.current == 0, f == nil:
		err := g.cause
		if err == nil {
			err = &lifecycle.RankError{Epoch: c.round.Epoch, Rank: -1, Reason: "the group is " + g.life.Phase().String()}
		}
		c.reply(nil, err)
	case g.current != c.round.Epoch:
		c.reply(nil, fmt.Errorf("round of epoch %d, the group is in epoch %d: %w", c.round.Epoch, g.current, actors.ErrStaleEpoch))
	default:
		f.run(c)
	}
}

// WaitServing implements coordinator.Group.
func (g *group) WaitServing(ctx context.Context) (uint32, error) {
	for {
		g.mu.Lock()
		current, err, changed := g.current, g.err, g.changed
		g.mu.Unlock()
		switch {
		case current != 0:
			return current, nil
		case err != nil:
			return 0, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// Do implements coordinator.Group.
func (g *group) Do(ctx context.Context, r *round.Round) (*round.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	g.asked.Store(0)
	c := &call{w: g.w, round: r, done: make(chan answer, 1)}
	g.w.ask(func() { g.w.begin(g, c) })
	a := <-c.done
	return a.result, a.err
}

// Break implements coordinator.Group.
func (g *group) Break(rank int, reason string) {
	epoch := g.Epoch()
	if epoch == 0 {
		return
	}
	g.w.ask(func() {
		g.w.clock.soon(time.Microsecond, 100*time.Microsecond, func() {
			g.lost(&lifecycle.RankError{Epoch: epoch, Rank: rank, Reason: reason})
		})
	})
}

// Epoch implements coordinator.Group.
func (g *group) Epoch() uint32 {
	if g.asked.Add(1) > askLimit {
		// Nothing else would end it: while it turns, virtual time stands still.
		panic(fmt.Sprintf("simulation: seed %d: the coordinator turns without end and runs no round", g.w.report.Seed))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.current
}

// Err implements coordinator.Group.
func (g *group) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

var _ coordinator.Group = (*group)(nil)
