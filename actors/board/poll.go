package board

import (
	"time"

	"github.com/octet-run/octet/internal/shm"
)

// poll is the time for which a waiter looks at a word before it sleeps.
type poll struct {
	spin  time.Duration
	until time.Time
}

func newPoll(spin time.Duration) poll { return poll{spin: spin} }

// on looks at the word for a moment, and reports false once the time is up.
func (p *poll) on(word *shm.Word, old uint32) bool {
	if p.spin == 0 {
		return false
	}
	now := time.Now()
	if p.until.IsZero() {
		p.until = now.Add(p.spin)
	}
	if !now.Before(p.until) {
		return false
	}
	const looks = 64 // about a microsecond
	for i := 0; i < looks && word.Load() == old; i++ {
		shm.Pause()
	}
	return true
}
