package board

import "time"

// Patience bounds Collect. The zero value waits for ever, as long as some rank
// that owes an answer makes progress at least every 250 ms.
type Patience struct {
	// Deadline ends the round whatever the ranks do.
	Deadline time.Duration
	// Stall ends it when no rank that owes an answer has made progress for so long.
	Stall time.Duration
	// Watch, if set, begins to measure for how long a rank is kept from running by
	// others that use the machine: that time is none of its silence. turns is how
	// often it had a processor: a rank that waits for others and has had a few would
	// have seen them come. stopped ends all patience with the rank.
	Watch func(rank int, now time.Time) Delays
}

// Delays is what Patience.Watch returns.
type Delays interface {
	Held(now time.Time) (held time.Duration, turns uint64, stopped bool)
}

const (
	defaultStall = 250 * time.Millisecond
	// The delays of silent ranks are measured from this part of Stall on.
	watchPart = 4
	// lookEvery is how often they are looked at.
	lookEvery = 20 * time.Millisecond
	// fewTurns on a processor are enough to see what a rank waits for.
	fewTurns = 8
)

// ExcuseLimit ends what a busy machine can excuse.
const ExcuseLimit = 30 * time.Second

// silence is the time in which no rank that owes an answer has made progress.
type silence struct {
	since time.Time
	sum   uint64
	owing int
	// longest is the longest that is over.
	longest time.Duration
	// seen is when this side last ran.
	seen time.Time

	watched []watched // from watchPart of Stall on
	begun   time.Time
	looked  time.Time
}

type watched struct {
	rank   int
	delays Delays
}

// moved reports whether any rank has answered or made progress since the last call.
func (w *silence) moved(b *Board, seq uint64) bool {
	var sum uint64
	owing := b.missing(seq)
	for _, r := range owing {
		sum += b.seatOf[r].beats.Load()
	}
	moved := sum != w.sum || len(owing) != w.owing
	w.sum, w.owing = sum, len(owing)
	return moved
}

// over reports whether the ranks have been silent for p.Stall of time that was
// their own.
func (w *silence) over(b *Board, seq uint64, p *Patience, now time.Time) bool {
	if w.moved(b, seq) {
		w.longest = max(w.longest, w.own(now))
		w.since, w.watched = now, nil
		return false
	}
	silent := now.Sub(w.since)
	switch {
	case silent < p.Stall/watchPart:
		return false
	case p.Watch == nil || silent >= ExcuseLimit+p.Stall:
		return silent >= p.Stall
	case w.watched == nil:
		for _, r := range b.behind(b.missing(seq)) {
			w.watched = append(w.watched, watched{r, p.Watch(r, now)})
		}
		w.begun, w.looked = now, now
		return false
	case now.Sub(w.looked) < lookEvery:
		return false
	}
	w.looked = now
	// Before the watch began nobody knows: this side may have been kept as well.
	own := now.Sub(w.begun) + p.Stall/watchPart
	over := true
	for _, r := range w.watched {
		held, turns, stopped := r.delays.Held(now)
		if stopped && own >= p.Stall {
			return true
		}
		if b.seatOf[r.rank].waiting.Load() != 0 && turns >= fewTurns {
			held = 0
		}
		over = over && own-held >= p.Stall
	}
	return over
}

// GapLimit is the most that counts of a time in which this side did not run. Who
// waits looks every few milliseconds: if it could not, the ranks could not be seen to
// move, or the whole machine stood still.
const GapLimit = 100 * time.Millisecond

// skip takes out of the silence what this side did not see of it.
func (w *silence) skip(now time.Time) time.Duration {
	gap := max(now.Sub(w.seen)-GapLimit, 0)
	w.seen, w.since, w.begun = now, w.since.Add(gap), w.begun.Add(gap)
	return gap
}

// own is the silence up to now, less the longest that a watched rank was held.
func (w *silence) own(now time.Time) time.Duration {
	own := now.Sub(w.since)
	for _, r := range w.watched {
		held, _, _ := r.delays.Held(now)
		own = min(own, now.Sub(w.since)-held)
	}
	return own
}
