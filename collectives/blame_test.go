package collectives

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/octet-run/octet/collectives/transport"
	"github.com/octet-run/octet/internal/shm"
)

// hangCase is a rank that stops for good inside an operation, at the so-manieth time
// that it turns to its transport there.
type hangCase struct {
	algorithm string
	shape     Shape
	victim    int
	point     int
	last      bool // the victim is made the last to arrive, where ranks arrive
	fused     bool
}

const (
	hangOp       = 2 // an operation has gone before
	hangDeadline = time.Hour
)

// hangGroup is what the ranks of a case and its watchman share. Time passes only when
// the watchman says so, which is when no rank that lives can go on.
type hangGroup struct {
	hangCase
	now     atomic.Int64
	hung    chan struct{} // the victim has stopped
	at      string        // where, once it has
	release chan struct{}
	ended   chan struct{} // all that live are back
	links   []*hangLink
}

// hangLink counts what its rank does, so that one can see that nothing goes on.
type hangLink struct {
	*transport.SharedMemory
	g      *hangGroup
	op     uint32
	turns  int // to the transport, in this operation
	calls  atomic.Int64
	idles  atomic.Int64
	waitOn atomic.Int64 // the rank whose flag was waited for last
	gone   atomic.Bool
}

func (l *hangLink) turn(what string, op uint32) {
	l.calls.Add(1)
	if op != l.op {
		l.op, l.turns = op, 0
	}
	if l.Rank() == l.g.victim && op == hangOp && l.turns == l.g.point {
		l.g.at = what
		close(l.g.hung)
		<-l.g.release
	}
	l.turns++
}

func (l *hangLink) Post(op uint32, d transport.Descriptor) {
	l.turn("before post", op)
	l.SharedMemory.Post(op, d)
	l.turn("after post", op)
}

func (l *hangLink) AwaitPost(from int, op uint32) error {
	l.turn(fmt.Sprintf("before the post of %d", from), op)
	l.waitOn.Store(int64(from))
	return l.SharedMemory.AwaitPost(from, op)
}

func (l *hangLink) Signal(to, tag int, op uint32) {
	l.turn(fmt.Sprintf("before flag %d to %d", tag, to), op)
	l.SharedMemory.Signal(to, tag, op)
}

func (l *hangLink) Await(from, tag int, op uint32, phase transport.Phase) error {
	l.turn(fmt.Sprintf("before flag %d of %d (%v)", tag, from, phase), op)
	l.waitOn.Store(int64(from))
	return l.SharedMemory.Await(from, tag, op, phase)
}

func (l *hangLink) Arrive(op uint32) bool {
	if l.g.last && l.Rank() == l.g.victim {
		l.g.settle()
	}
	l.turn("before arrival", op)
	last := l.SharedMemory.Arrive(op)
	l.turn("after arrival", op)
	return last
}

func (l *hangLink) Open(op uint32) error {
	l.turn("before the chunks are offered", op)
	return l.SharedMemory.Open(op)
}

func (l *hangLink) Claim(op uint32, chunks int) (int, bool) {
	chunk, ok := l.SharedMemory.Claim(op, chunks)
	if ok {
		l.turn("with a chunk in hand", op)
	}
	return chunk, ok
}

func (l *hangLink) Finish(op uint32, chunks int) {
	l.turn("before a chunk is finished", op)
	l.SharedMemory.Finish(op, chunks)
}

func (l *hangLink) AwaitFinish(op uint32, help func() bool) error {
	l.turn("before all chunks are finished", op)
	return l.SharedMemory.AwaitFinish(op, help)
}

func (l *hangLink) Complete(op uint32) {
	l.turn("before completion", op)
	l.SharedMemory.Complete(op)
}

// settle returns when no rank but the victim can go on: each has looked at what it
// waits for after all had done what they could.
func (g *hangGroup) settle() {
	for {
		calls, idles := make([]int64, len(g.links)), make([]int64, len(g.links))
		for r, l := range g.links {
			calls[r] = l.calls.Load()
		}
		for r, l := range g.links {
			idles[r] = l.idles.Load()
		}
		quiet := true
		for r, l := range g.links {
			if r == g.victim {
				continue
			}
			for l.idles.Load() < idles[r]+2 && !l.gone.Load() {
				runtime.Gosched()
			}
			quiet = quiet && l.calls.Load() == calls[r]
		}
		if quiet {
			return
		}
	}
}

// run lets the case happen. It reports where the victim stopped, "" if it never did,
// and the errors of all ranks.
func (h hangCase) run(t *testing.T) (at string, errs []error, links []*hangLink) {
	t.Helper()
	ranks := h.shape.Ranks
	g := newGroup(t, transport.Config{Ranks: ranks, MaxRows: 2, MaxWidth: 200})
	hg := &hangGroup{hangCase: h, hung: make(chan struct{}), release: make(chan struct{}), ended: make(chan struct{})}
	for rank := range ranks {
		l := &hangLink{g: hg}
		polling := transport.Polling{
			Timeout: hangDeadline,
			Idle:    func() { l.idles.Add(1); runtime.Gosched() },
			Now:     func() time.Time { return time.Unix(0, hg.now.Load()) },
		}
		var err error
		if l.SharedMemory, err = g.Attach(rank, polling); err != nil {
			t.Fatal(err)
		}
		hg.links = append(hg.links, l)
	}
	var watch, living sync.WaitGroup
	living.Add(ranks - 1)
	watch.Go(func() {
		select {
		case <-hg.hung:
			hg.settle()
			hg.now.Add(int64(2 * hangDeadline))
		case <-hg.ended:
		}
	})
	watch.Go(func() { living.Wait(); close(hg.ended); close(hg.release) })
	errs = runOn(t, g, func(rank int) error {
		l := hg.links[rank]
		if rank != h.victim {
			defer living.Done()
		}
		defer l.gone.Store(true)
		c, err := New(l, Config{Plan: planOf(h.algorithm, h.shape)})
		if err != nil {
			return err
		}
		for range hangOp + 2 {
			if h.fused {
				_, err = c.AllReduceAddNorm(make([]float32, 400), 2, 200, make([]float32, 400), make([]float32, 200), 1)
			} else {
				_, err = c.AllReduce(make([]float32, 400), 2, 200)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	watch.Wait()
	return hg.at, errs, hg.links
}

// TestARankThatHangsAnywhereIsNamedByAllOthers hangs every rank at every point at
// which it turns to the transport, in every algorithm. The ranks that wait for it
// directly, and those that wait for those, must all name it and nobody else.
//
// The control: to blame whom one waits for oneself is wrong somewhere in every
// algorithm in which ranks wait for one another in turn.
func TestARankThatHangsAnywhereIsNamedByAllOthers(t *testing.T) {
	for _, a := range Algorithms() {
		shape := Shape{Ranks: 4, Islands: []int{2, 2}, Coherent: true}
		for _, form := range []struct{ fused, last bool }{{false, false}, {true, false}, {false, true}} {
			if form.last && a.Name != "central" {
				continue
			}
			t.Run(fmt.Sprintf("%s/fused %v/last %v", a.Name, form.fused, form.last), func(t *testing.T) {
				var points, misled int
				for victim := range shape.Ranks {
					for point := 0; ; point++ {
						h := hangCase{a.Name, shape, victim, point, form.last, form.fused}
						at, errs, links := h.run(t)
						if at == "" {
							mustAll(t, errs)
							break
						}
						points++
						misled += h.check(t, at, errs, links)
					}
				}
				t.Logf("%d places to hang; whom one waits for oneself was the wrong one to blame %d times", points, misled)
				if points < 4*shape.Ranks {
					t.Errorf("ranks hung at %d places only", points)
				}
				if inTurn := a.Name == "ring" || a.Name == "hierarchical"; inTurn && misled == 0 {
					t.Error("nobody ever waited for a rank that waited itself: the test shows nothing")
				}
			})
		}
	}
}

// check compares whom the ranks blame with who hung, and counts those that would
// have blamed another had they blamed whom they waited for.
func (h hangCase) check(t *testing.T, at string, errs []error, links []*hangLink) (misled int) {
	t.Helper()
	for r, err := range errs {
		if r == h.victim {
			continue
		}
		var timeout *transport.TimeoutError
		var abort *shm.AbortError
		named := -1
		switch {
		case errors.As(err, &timeout) && len(timeout.Missing) == 1:
			named = timeout.Rank
		case errors.As(err, &abort):
			named = abort.Rank
		}
		if named != h.victim {
			t.Errorf("rank %d hung %s: rank %d says %v", h.victim, at, r, err)
		}
		if h.algorithm != "central" && int(links[r].waitOn.Load()) != h.victim {
			misled++
		}
	}
	return misled
}
