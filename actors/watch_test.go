package actors

import (
	"testing"
	"time"

	"github.com/octet-run/octet/actors/board"
)

// kept is a rank that has been kept from running for a part of the time.
type kept struct {
	begun   time.Time
	part    float64
	stopped bool
}

func (k kept) Held(now time.Time) (held time.Duration, turns uint64, stopped bool) {
	return time.Duration(k.part * float64(now.Sub(k.begun))), 0, k.stopped
}

func TestAnIdleRankIsExcusedForAsLongAsAnotherKeepsItButNotForEver(t *testing.T) {
	const stall = 250 * time.Millisecond
	for name, c := range map[string]struct {
		kept kept
		lost time.Duration
	}{
		"sleeps":                       {kept{}, calmFactor * stall},
		"is stopped":                   {kept{stopped: true}, stall},
		"has half a processor":         {kept{part: 0.5}, 2 * calmFactor * stall},
		"has none, or waits on a disk": {kept{part: 1}, board.ExcuseLimit + calmFactor*stall},
	} {
		begun := time.Now()
		c.kept.begun = begun
		w := &watch{config: &Config{Stall: stall}, serving: true, moved: []time.Time{begun}, delays: []board.Delays{c.kept}}
		for _, at := range []time.Duration{c.lost - time.Millisecond, c.lost} {
			limit, _ := w.patience(0)
			if lost := w.silent(0, limit, begun.Add(at)); lost != (at == c.lost) {
				t.Errorf("a rank that %s is lost after %v: %v", name, at, lost)
			}
		}
	}
}
