package simulation

import (
	"time"

	"github.com/octet-run/octet/faults"
)

// external is a fault that the world carries out: on a process as a whole, on the
// server, or on a user's connection.
type external struct {
	faults.Fault
	done bool
}

// arm sorts the script's faults by who carries them out. Those on data are left to
// the real injectors, where the bytes are; those that stop or delay a process are
// matched by real injectors and carried out by pass, because their time is virtual.
func (w *world) arm(script []faults.Fault) {
	inside, data, shared := &faults.Script{}, &faults.Script{}, &faults.Script{}
	for _, f := range script {
		switch {
		case f.Do.External(), onServer(f.At):
			w.external = append(w.external, &external{Fault: f})
		case f.At == faults.BoardPublish, f.At == faults.BoardCollect:
			shared.Faults = append(shared.Faults, f)
		case onData(&f):
			data.Faults = append(data.Faults, f)
		default:
			inside.Faults = append(inside.Faults, f)
		}
	}
	for r := range w.plan.ranks {
		w.wire = append(w.wire, faults.NewInjector(data, r))
		w.inner = append(w.inner, faults.NewInjector(inside, r))
	}
	w.boardFaults = faults.NewInjector(shared, faults.Any)
	for _, e := range w.external {
		if e.When.After > 0 {
			w.clock.after(e.When.After, func() { w.strike(e) })
		}
	}
}

func onServer(p faults.Point) bool {
	return p == faults.CoordinatorRound || p == faults.CoordinatorCommit || p == faults.CoordinatorEmit
}

func onData(f *faults.Fault) bool {
	switch f.Do {
	case faults.Drop, faults.Duplicate, faults.Reorder, faults.Flip, faults.Tear, faults.Stale:
		return true
	case faults.NaN:
		return f.At == faults.CollectiveArrive
	case faults.Fail:
		return f.At == faults.LinkSend || f.At == faults.LinkReceive ||
			f.At == faults.CollectiveArrive || f.At == faults.CollectiveReduce || f.At == faults.CollectiveLeave
	}
	return false
}

// roundFaults carries out what is due in the round that begins.
func (w *world) roundFaults() {
	for _, e := range w.external {
		n := e.When.Round
		switch {
		case n == 0 || w.rounds < n:
		case e.Every > 0 && (w.rounds-n)%e.Every == 0, e.Every == 0 && !e.done:
			w.strike(e)
		}
	}
}

// strike carries out a fault, somewhere in the round if it is one of a round.
func (w *world) strike(e *external) {
	n := w.server
	if e.done && e.Every == 0 || n == nil || n.dead.Load() || w.clients == 0 {
		return
	}
	e.done = true
	w.struck = append(w.struck, e.Fault)
	w.note("strike %s %s", e.Do, e.At)
	switch {
	case e.At == faults.CoordinatorRound:
		w.hold += e.For
	case e.At == faults.CoordinatorCommit:
		n.log.set(true, noCrash)
	case e.At == faults.CoordinatorEmit:
		w.user(func(c *client) { w.disturb(c, e) })
	case e.Rank == faults.Supervisor:
		w.killServer(n)
	default:
		f := n.group.f
		w.clock.soon(0, 600*time.Microsecond, func() { w.signal(f, e) })
	}
}

// disturb is what a fault does to a user's connection.
func (w *world) disturb(c *client, e *external) {
	if e.Do == faults.Delay {
		c.mu.Lock()
		c.slow = e.For
		c.mu.Unlock()
		return
	}
	w.clock.soon(0, time.Millisecond, c.hangUp)
}

// user picks one that is connected.
func (w *world) user(do func(*client)) {
	var connected []*client
	for _, c := range w.users {
		if c.cancel != nil && !c.ended {
			connected = append(connected, c)
		}
	}
	if len(connected) > 0 {
		do(connected[w.clock.chance.IntN(len(connected))])
	}
}

// killServer crashes the serving process: at once, a little later, or while it
// writes to its log.
func (w *world) killServer(n *incarnation) {
	switch w.clock.chance.IntN(4) {
	case 0:
		n.log.set(false, beforeWrite)
	case 1:
		n.log.set(false, afterWrite)
	case 2:
		n.crash()
	default:
		w.clock.soon(0, 600*time.Microsecond, n.crash)
	}
}

// signal sends a process what kill(1) would.
func (w *world) signal(f *formation, e *external) {
	if f == nil || f.released {
		return
	}
	p := f.ranks[max(e.Rank, 0)]
	if p.dead {
		return
	}
	if e.Do != faults.Stop {
		p.kill()
		return
	}
	p.thread.stop()
	w.clock.after(e.For, p.thread.cont)
	w.hung(p)
}

// hung sees to it that a process which does not get on is noticed while no round
// does: then actors' watch misses its signs of life.
func (w *world) hung(p *process) {
	w.clock.after(stallLimit+20*time.Millisecond, func() {
		if f := p.f; f.call == nil && f.cause == nil && !f.draining && !p.dead && p.loaded && p.thread.stopped {
			f.lost(p, "gave no sign of life while idle")
		}
	})
}

// allStruck counts the faults that have struck.
func (w *world) allStruck() int {
	n := len(w.struck)
	for r := range w.wire {
		n += len(w.wire[r].Fired()) + len(w.inner[r].Fired())
	}
	return n + len(w.boardFaults.Fired())
}
