package audit

import (
	"slices"
	"time"

	"github.com/octet-run/octet/faults"
)

// Class is a kind of fault with bounds of its own.
type Class string

// The classes.
const (
	Death  Class = "death"  // the process is gone or says that it failed
	Stuck  Class = "stuck"  // nothing moves, or what came cannot be right
	Strain Class = "strain" // slower than usual: no loss is expected
	// Control: a control message is damaged or lost. That shows when the next one
	// comes, whenever that is.
	Control Class = "control"
	// Asked: the process is told to end, and takes its time.
	Asked Class = "asked"
	// Loading: it strikes while the group forms, and counts from there.
	Loading Class = "loading"
)

// ClassOf is the class of a fault.
func ClassOf(f faults.Fault) Class {
	switch f.At {
	case faults.LinkSend, faults.LinkReceive, faults.DeviceHealth:
		return Control
	case faults.RankLoad, faults.GroupForm:
		return Loading
	}
	switch f.Do {
	case faults.Term:
		return Asked
	case faults.Kill, faults.Abort, faults.Exit, faults.Panic, faults.Fail:
		return Death
	case faults.Delay, faults.NaN:
		return Strain
	}
	return Stuck
}

// Bound is how soon a loss must be noticed, and the group must serve again.
type Bound struct{ Noticed, Serving time.Duration }

// Strike is a fault that struck.
type Strike struct {
	Time  time.Time
	Fault faults.Fault
	Rank  int
}

// Loss is the end of an epoch, as the supervisor told of it.
type Loss struct {
	Time  time.Time
	Epoch uint32
	Rank  int // -1: none in particular
	Why   string
}

// Recovery is a loss with its cause and when the group served again.
type Recovery struct {
	Class   Class
	Fault   faults.Fault
	Rank    int // that the fault struck
	Blamed  int // that the supervisor blamed
	Epoch   uint32
	Noticed time.Duration
	Serving time.Duration // 0: not at all
}

// Recoveries finds the fault behind each loss: of those that struck since the last
// loss, one that struck the blamed rank, or else the last. served are the times at
// which the group served. A loss without a fault is a breach.
func (a *Audit) Recoveries(strikes []Strike, losses []Loss, served []time.Time) []Recovery {
	var list []Recovery
	var since time.Time
	for _, loss := range losses {
		cause := -1
		for i, s := range strikes {
			if s.Time.After(loss.Time) || !s.Time.After(since) || ClassOf(s.Fault) == Strain {
				continue
			}
			if cause < 0 || strikes[cause].Rank != loss.Rank || s.Rank == loss.Rank {
				cause = i
			}
		}
		a.check(Explained, cause >= 0, "epoch %d ended without a fault: %s", loss.Epoch, loss.Why)
		since = loss.Time
		if cause < 0 {
			continue
		}
		s := strikes[cause]
		r := Recovery{
			Class: ClassOf(s.Fault), Fault: s.Fault, Rank: s.Rank, Blamed: loss.Rank, Epoch: loss.Epoch, Noticed: loss.Time.Sub(s.Time),
		}
		if i := slices.IndexFunc(served, loss.Time.Before); i >= 0 {
			r.Serving = served[i].Sub(s.Time)
		}
		list = append(list, r)
	}
	return list
}

// Percentiles of some times.
type Percentiles struct {
	N        int
	P50, P99 time.Duration
}

// PercentilesOf takes the nearest rank.
func PercentilesOf(times []time.Duration) Percentiles {
	if len(times) == 0 {
		return Percentiles{}
	}
	sorted := slices.Sorted(slices.Values(times))
	at := func(p int) time.Duration { return sorted[min((len(sorted)*p+99)/100, len(sorted))-1] }
	return Percentiles{N: len(sorted), P50: at(50), P99: at(99)}
}

// Times are the percentiles of a class.
type Times struct{ Noticed, Serving Percentiles }

// TimesOf are the percentiles of each class that occurs.
func TimesOf(list []Recovery) map[Class]Times {
	noticed, serving := map[Class][]time.Duration{}, map[Class][]time.Duration{}
	for _, r := range list {
		noticed[r.Class] = append(noticed[r.Class], r.Noticed)
		if r.Serving > 0 {
			serving[r.Class] = append(serving[r.Class], r.Serving)
		}
	}
	times := map[Class]Times{}
	for class := range noticed {
		times[class] = Times{PercentilesOf(noticed[class]), PercentilesOf(serving[class])}
	}
	return times
}

// Bounds holds the 99th percentiles against the bounds.
func (a *Audit) Bounds(times map[Class]Times, bounds map[Class]Bound) {
	for class, t := range times {
		b, bounded := bounds[class]
		if !bounded {
			continue
		}
		a.check(Bounds, t.Noticed.P99 <= b.Noticed, "%s: noticed in %v (p99), the bound is %v", class, t.Noticed.P99.Round(time.Millisecond), b.Noticed)
		a.check(Bounds, t.Serving.P99 <= b.Serving, "%s: served again in %v (p99), the bound is %v", class, t.Serving.P99.Round(time.Millisecond), b.Serving)
	}
}

// Restarts holds the times at which the group formed again against its budget:
// at most most within any window.
func (a *Audit) Restarts(formed []time.Time, most int, window time.Duration) {
	for i, at := range formed {
		n := 1
		for j := i - 1; j >= 0 && at.Sub(formed[j]) < window; j-- {
			n++
		}
		a.check(Budget, n <= most, "the group formed again %d times within %v, it may %d times", n, window, most)
	}
}

// Answer judges a round's answer: it must be of the epoch and number asked for,
// and epochs never go back.
func (a *Audit) Answer(last, asked, got uint32, askedRound, gotRound uint64) {
	a.check(Epochs, asked == got && askedRound == gotRound, "round %d of epoch %d was answered by round %d of epoch %d", askedRound, asked, gotRound, got)
	a.check(Epochs, asked >= last, "a round of epoch %d ran after one of epoch %d", asked, last)
}
