package simulation

import (
	"container/heap"
	"math/rand/v2"
	"testing/synctest"
	"time"
)

// clock is virtual time and what is to happen in it. Events run on one goroutine,
// by time, and by the order in which they were planned where times are equal.
//
// The bubble's own clock, which the coordinator and its clients see, follows: it
// stands still while only simulated ranks run, and is brought up to date before
// anything is told to the outside (settle).
type clock struct {
	now    time.Duration
	start  time.Time
	events events
	count  uint64
	chance *rand.Rand // of the schedule
	// nudge wakes the clock when the outside has something to say.
	nudge chan struct{}
}

func newClock(chance *rand.Rand) *clock {
	return &clock{start: time.Now(), chance: chance, nudge: make(chan struct{}, 1)}
}

// after plans do.
func (c *clock) after(d time.Duration, do func()) {
	c.count++
	heap.Push(&c.events, &event{at: c.now + d, order: c.count, do: do})
}

// soon plans do after a latency drawn between the bounds.
func (c *clock) soon(least, most time.Duration, do func()) {
	c.after(c.between(least, most), do)
}

func (c *clock) between(least, most time.Duration) time.Duration {
	return least + time.Duration(c.chance.Int64N(int64(most-least)+1))
}

// step runs the next event. live says that the outside may act by itself
// meanwhile: then the bubble's clock goes along, and step returns early if the
// outside has something to say. It reports false when nothing is planned.
func (c *clock) step(live bool) bool {
	if len(c.events) == 0 {
		return false
	}
	if live && !c.follow(c.events[0].at) {
		return true
	}
	e := heap.Pop(&c.events).(*event)
	c.now = max(c.now, e.at)
	e.do()
	return true
}

// follow lets the outside live until the time at. It returns false, and the clock
// stands earlier, if the outside has something to say before.
func (c *clock) follow(at time.Duration) bool {
	if wait := at - time.Since(c.start); wait > 0 {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-c.nudge:
			timer.Stop()
			synctest.Wait()
			c.now = max(c.now, time.Since(c.start))
			return false
		}
	}
	synctest.Wait()
	select {
	case <-c.nudge:
		c.now = max(c.now, time.Since(c.start))
		return false
	default:
		return true
	}
}

// settle brings the bubble's clock to now and waits until nothing outside moves.
func (c *clock) settle() {
	if wait := c.now - time.Since(c.start); wait > 0 {
		time.Sleep(wait)
	}
	synctest.Wait()
}

// poke says that the outside has something to say. It is called from outside.
func (c *clock) poke() {
	select {
	case c.nudge <- struct{}{}:
	default:
	}
}

// event is something that happens at a time.
type event struct {
	at    time.Duration
	order uint64
	do    func()
}

// events is a heap by time.
type events []*event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(*event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*e = old[:len(old)-1]
	return last
}
