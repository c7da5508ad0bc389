package actors

import (
	"math/bits"
	"slices"
	"time"

	"github.com/octet-run/octet/actors/board"
	"github.com/octet-run/octet/actors/round"
)

// roundTimes remembers how long the last rounds took, and how long the ranks were
// silent in them. A rank may be silent for as long as its longest piece of work
// takes, which grows with the rows of a round: each size of rounds, by powers of two,
// has a memory of its own.
type roundTimes struct {
	whole  window
	silent [maxSizes]window
}

// maxSizes is for rounds of up to 2^23 rows.
const maxSizes = 24

// window is the last times of a kind.
type window struct {
	last     [128]time.Duration
	n        int
	p50, p99 time.Duration
}

// refreshEvery is how many rounds the percentiles may be behind.
const refreshEvery = 32

func (w *window) add(d time.Duration) {
	w.last[w.n%len(w.last)] = d
	w.n++
	if w.n%refreshEvery != 0 && w.n > refreshEvery {
		return
	}
	sorted := w.last
	filled := sorted[:min(w.n, len(sorted))]
	slices.Sort(filled)
	w.p50, w.p99 = filled[len(filled)/2], filled[len(filled)*99/100]
}

// add takes a round of so many rows that lasted whole, in which the ranks were silent
// for silent at most.
func (t *roundTimes) add(rows int, whole, silent time.Duration) {
	t.whole.add(whole)
	t.silent[sizeOf(rows)].add(silent)
}

func sizeOf(rows int) int { return min(bits.Len(uint(rows)), maxSizes-1) }

const (
	// stallFactor is how many slow rounds' silences a stall is.
	stallFactor = 10
	// fewRounds of a size tell nothing yet.
	fewRounds = 2
	// unknownFactor is how many times Config.Stall the first rounds of all may be
	// silent for: memory is touched for the first time.
	unknownFactor = 20
	// silenceFloor is what is taken for the silence of a size from which that of a
	// larger one is foretold: shorter ones are not measured.
	silenceFloor = 5 * time.Millisecond
)

// stall is how long a round of so many rows may be silent. What is not known of its
// size is foretold from the next smaller one.
func (t *roundTimes) stall(c *Config, rows int) time.Duration {
	size := sizeOf(rows)
	for k := size; k >= 0; k-- {
		w := &t.silent[k]
		switch {
		case w.n < fewRounds:
		case k == size:
			return max(c.Stall, stallFactor*w.p99)
		default:
			return max(c.Stall, stallFactor*max(w.p99, silenceFloor)<<(size-k))
		}
	}
	return unknownFactor * c.Stall
}

// slowest is the silence of the slow rounds of any size.
func (t *roundTimes) slowest() (d time.Duration) {
	for i := range t.silent {
		d = max(d, t.silent[i].p99)
	}
	return d
}

// patience is how long the next round may be silent and last.
func (t *roundTimes) patience(c *Config, rows int) board.Patience {
	return board.Patience{Stall: t.stall(c, rows), Deadline: c.RoundDeadline}
}

// rowsOf is how many rows a round puts through the model.
func rowsOf(r *round.Round) (rows int) {
	for i := range r.Entries {
		e := &r.Entries[i]
		rows += max(len(e.Tokens), int(e.Draft.Nodes))
	}
	return rows
}
