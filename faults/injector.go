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
	rank   int
	start  time.Time
	ledger Ledger // nil: the faults are this process's own

	mu      sync.Mutex
	version uint64 // of the ledger, as far as it has been read
	armed   []*armed
	fired   []Event
	hits    map[Point]uint64
	round   uint64 // the last that a point knew of
}

// Ledger is where faults are armed that several processes have in common: each
// strikes as often as it says, whichever process gets there first, and a process
// that died of one does not meet it again when it comes back. Its methods may be
// called from any goroutine.
type Ledger interface {
	// Version is another number whenever Armed has changed.
	Version() uint64
	// Armed lists what may still strike.
	Armed() []Armed
	// Strike notes that a fault strikes, and says whether it may: one that strikes
	// once may have struck elsewhere.
	Strike(id int, e Event) bool
	// Rounds is how many rounds of the run were over before those that the points
	// of this process count.
	Rounds() uint64
}

// Armed is a fault in a Ledger.
type Armed struct {
	ID    int
	Fault Fault
	Since time.Time
}

type armed struct {
	id    int
	fault Fault
	since time.Time
	done  bool
	// period is the last in which it struck, here or elsewhere.
	period uint64
}

// Event is a fault that struck.
type Event struct {
	Fault Fault
	Rank  int // in whose process
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

// NewSharedInjector has what is armed in the ledger, now or later, strike in the
// process of this rank.
func NewSharedInjector(ledger Ledger, rank int) *Injector {
	return &Injector{rank: rank, start: time.Now(), ledger: ledger, hits: map[Point]uint64{}}
}

// Arm adds a fault to those that wait. One that is another rank's, or that acts
// from outside, is ignored.
func (in *Injector) Arm(f Fault) {
	if !in.concerns(&f) {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.armed = append(in.armed, &armed{fault: f, since: in.start})
}

func (in *Injector) concerns(f *Fault) bool {
	return !f.Do.External() && (f.Rank == Any || f.Rank == in.rank)
}

// reload takes over what changed in the ledger.
func (in *Injector) reload() {
	version := in.ledger.Version()
	if version == in.version {
		return
	}
	in.version, in.armed = version, nil
	for _, a := range in.ledger.Armed() {
		if in.concerns(&a.Fault) {
			in.armed = append(in.armed, &armed{id: a.ID, fault: a.Fault, since: a.Since})
		}
	}
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

// Fired lists what has struck, in order; with a ledger, that knows.
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
	if in.ledger != nil {
		in.reload()
		if where.Round > 0 {
			where.Round += in.ledger.Rounds()
		}
	}
	if where.Round == 0 {
		where.Round = in.round // a point inside a round that does not count them
	}
	in.round = where.Round
	hit, now := in.hits[p], time.Now()
	for _, a := range in.armed {
		if a.done || a.fault.At != p || !a.fault.Due(where, hit, now.Sub(a.since)) {
			continue
		}
		if period := a.fault.Period(where.Round); period > 0 {
			if period == a.period {
				continue
			}
			a.period = period
		}
		a.done = a.fault.Every == 0
		e := Event{Fault: a.fault, Rank: in.rank, Where: where, Hit: hit, At: now.Sub(in.start)}
		switch {
		case in.ledger == nil:
			in.fired = append(in.fired, e)
		case !in.ledger.Strike(a.id, e):
			continue
		}
		f := a.fault
		return &f
	}
	return nil
}

// Due reports whether the fault's time has come: the point is passed for the
// hit-th time, so long after the fault was armed.
func (f *Fault) Due(where Where, hit uint64, since time.Duration) bool {
	switch {
	case f.When.Round > 0:
		return where.Round >= f.When.Round
	case f.When.Op > 0:
		return reached(where.Op, f.When.Op, f.Every)
	case f.When.Hit > 0:
		return reached(hit, f.When.Hit, f.Every)
	case f.When.After > 0:
		return since >= f.When.After
	}
	return true
}

// Period counts how often a fault that repeats rounds has been due, up to a round: it
// strikes once for each, in that round or the next that comes to its point. It is 0
// for other faults.
func (f *Fault) Period(round uint64) uint64 {
	if f.Every == 0 || f.When.Round == 0 || round < f.When.Round {
		return 0
	}
	return 1 + (round-f.When.Round)/f.Every
}

// reached is exact for a fault that repeats and "at or past" for one that does
// not: a point need not be passed at every operation.
func reached(n, want, every uint64) bool {
	if every > 0 {
		return n >= want && (n-want)%every == 0
	}
	return n >= want
}
