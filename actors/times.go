package actors

import (
	"slices"
	"time"

	"github.com/octet-run/octet/actors/board"
)

// roundTimes remembers how long the last rounds took.
type roundTimes struct {
	last     [128]time.Duration
	n        int
	p50, p99 time.Duration
}

// refreshEvery is how many rounds the percentiles may be behind.
const refreshEvery = 32

func (t *roundTimes) add(d time.Duration) {
	t.last[t.n%len(t.last)] = d
	t.n++
	if t.n%refreshEvery != 0 && t.n > refreshEvery {
		return
	}
	sorted := t.last
	filled := sorted[:min(t.n, len(sorted))]
	slices.Sort(filled)
	t.p50, t.p99 = filled[len(filled)/2], filled[len(filled)*99/100]
}

// stallFactor is how many slow rounds a stall is.
const stallFactor = 10

// patience is how long the next round may be silent and last.
func (t *roundTimes) patience(c *Config) board.Patience {
	return board.Patience{Stall: max(c.Stall, stallFactor*t.p99), Deadline: c.RoundDeadline}
}
