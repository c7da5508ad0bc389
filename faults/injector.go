package faults

import (
	"errors"
	"sync"
	"time"
)

// ErrInjected is what a point returns when a script says fail.
var ErrInjected = errors.New("injected fault")

// Where is what a point knows when it is passed.
type Where struct {
	Round uint64
	Op    uint64
}

// Injector holds the faults that are armed in one process. The zero value of
// the pointer, nil, is a process without faults.
type Injector struct {
	rank  int
	start time.Time

	mu    sync.Mutex
	armed []*armed
	fired []Event
	hits  map[Point]uint64
}

type armed struct {
	fault Fault
	done  bool
}

// Event is a fault that struck.
type Event struct {
	Fault Fault
	Where Where
	Hit   uint64
	At    time.Duration // since the injector was made
}

// NewInjector arms those faults of the script that strike inside the process of
// this rank.
func NewInjector(script *Script, rank int) *Injector {
	in := &Injector{rank: rank, start: time.Now(), hits: map[Point]uint64{}}
	for _, f := range script.Faults {
		in.Arm(f)
	}
	return in
}

// Arm adds a fault to those that wait. One that is another rank's, or that acts
// from outside, is ignored.
func (in *Injector) Arm(f Fault) {
	if f.Do.External() || (f.Rank != Any && f.Rank != in.rank) {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.armed = append(in.armed, &armed{fault: f})
}

// Clear disarms everything.
func (in *Injector) Clear() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.armed = nil
}

// Armed lists the faults that have not struck for good.
func (in *Injector) Armed() []Fault {
	if in == nil {
		return nil
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	var list []Fault
	for _, a := range in.armed {
		if !a.done {
			list = append(list, a.fault)
		}
	}
	return list
}

// Fired lists what has struck, in order.
func (in *Injector) Fired() []Event {
	if in == nil {
		return nil
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	return append([]Event(nil), in.fired...)
}

// Point is passed at each place where a fault can strike. It returns the fault
// that does, or nil; the caller acts on the verbs that concern its data, and
// hands the others to Strike.
func (in *Injector) Point(p Point, where Where) *Fault {
	if in == nil {
		return nil
	}
	return in.pass(p, where)
}

func (in *Injector) pass(p Point, where Where) *Fault {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.hits[p]++
	hit, now := in.hits[p], time.Since(in.start)
	for _, a := range in.armed {
		if a.done || a.fault.At != p || !a.fault.due(where, hit, now) {
			continue
		}
		a.done = a.fault.Every == 0
		in.fired = append(in.fired, Event{a.fault, where, hit, now})
		f := a.fault
		return &f
	}
	return nil
}

func (f *Fault) due(where Where, hit uint64, now time.Duration) bool {
	switch {
	case f.When.Round > 0:
		return reached(where.Round, f.When.Round, f.Every)
	case f.When.Op > 0:
		return reached(where.Op, f.When.Op, f.Every)
	case f.When.Hit > 0:
		return reached(hit, f.When.Hit, f.Every)
	case f.When.After > 0:
		return now >= f.When.After
	}
	return true
}

// reached is exact for a fault that repeats and "at or past" for one that does
// not: a point need not be passed in every round.
func reached(n, want, every uint64) bool {
	if every > 0 {
		return n >= want && (n-want)%every == 0
	}
	return n >= want
}
