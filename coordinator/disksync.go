package coordinator

import (
	"fmt"
	"time"
)

// Sync says when a DiskLog has the disk take over what it wrote. A process that is
// killed loses nothing whatever it says: this is about a machine that goes down.
type Sync struct {
	// Always: before tokens are delivered.
	Always bool
	// Every is the time between two flushes, 0 for none.
	Every time.Duration
}

// ParseSync reads "always", "never" or a time.
func ParseSync(text string) (Sync, error) {
	switch text {
	case "always":
		return Sync{Always: true}, nil
	case "never":
		return Sync{}, nil
	}
	every, err := time.ParseDuration(text)
	if err != nil || every <= 0 {
		return Sync{}, fmt.Errorf("%q does not say when to flush: use always, never, or a time such as 200ms", text)
	}
	return Sync{Every: every}, nil
}

// flush flushes again and again until Close. A flush that fails is tried again; in
// the end Close tells of it.
func (l *DiskLog) flush(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = l.db.Sync()
		case <-l.stop:
			return
		}
	}
}
