package lifecycle

import (
	"fmt"
	"time"
)

// Restart bounds how often a group forms again. Zero values take the defaults.
type Restart struct {
	// Disabled: the first loss is the end.
	Disabled bool
	// Max is how many times within Window: 5.
	Max int
	// Window is the time that counts: 60 s.
	Window time.Duration
	// Pause is the wait before the second restart within the window: 50 ms. It
	// doubles with each further one, up to MaxPause: 2 s. The first is at once.
	Pause, MaxPause time.Duration
}

// Validate fills in the defaults and refuses what makes no sense.
func (r *Restart) Validate() error {
	if r.Max == 0 {
		r.Max = 5
	}
	if r.Window == 0 {
		r.Window = time.Minute
	}
	if r.Pause == 0 {
		r.Pause = 50 * time.Millisecond
	}
	if r.MaxPause == 0 {
		r.MaxPause = 2 * time.Second
	}
	if r.Max < 0 || r.Window < 0 || r.Pause < 0 || r.MaxPause < 0 {
		return fmt.Errorf("restart budget %+v: negative values; to never restart set Disabled", *r)
	}
	return nil
}

// budget counts restarts in a sliding window.
type budget struct {
	Restart
	spent []time.Time
}

// spend takes one restart at time now: how long to wait before it, or false when
// there is none left.
func (b *budget) spend(now time.Time) (time.Duration, bool) {
	if b.Disabled {
		return 0, false
	}
	recent := b.spent[:0]
	for _, at := range b.spent {
		if now.Sub(at) < b.Window {
			recent = append(recent, at)
		}
	}
	b.spent = recent
	if len(b.spent) >= b.Max {
		return 0, false
	}
	wait := time.Duration(0)
	if n := len(b.spent); n > 0 {
		wait = b.MaxPause
		if n < 32 && b.Pause<<(n-1) < b.MaxPause {
			wait = b.Pause << (n - 1)
		}
	}
	b.spent = append(b.spent, now)
	return wait, true
}

// exhausted is the last cause, with why it is the last.
func (b *budget) exhausted(cause *RankError) error {
	if b.Disabled {
		return cause
	}
	return fmt.Errorf("restart budget of %d in %v is used up; the last loss: %w", b.Max, b.Window, cause)
}
