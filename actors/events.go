package actors

import (
	"sync"
	"time"
)

// EventKind is what an Event tells.
type EventKind string

// The kinds of events.
const (
	RankStarted EventKind = "rank started"
	RankLoading EventKind = "rank loading" // Done and Total are set
	RankRejoins EventKind = "rank rejoins" // it outlived the last epoch
	RankReady   EventKind = "rank ready"
	RankLost    EventKind = "rank lost"
	RankOutput  EventKind = "rank output" // a line the process wrote
	GroupForms  EventKind = "group forms"
	GroupServes EventKind = "group serves"
	GroupBreaks EventKind = "group breaks"
	GroupPauses EventKind = "group pauses"
	GroupCloses EventKind = "group closes"
)

// Event is one thing that happened to a group.
type Event struct {
	// Time is when it was told; of RankLost, when the loss was noticed.
	Time  time.Time
	Kind  EventKind
	Epoch uint32
	Rank  int // -1: not about one rank
	// Message is a sentence, or the output's line.
	Message string
	// Done and Total are bytes loaded, of RankLoading.
	Done, Total uint64
}

// feed hands events to subscribers. A subscriber that does not keep up misses
// events; nobody waits for it.
type feed struct {
	mu   sync.Mutex
	subs map[chan Event]struct{}
	over bool
}

func (f *feed) subscribe(buffer int) (<-chan Event, func()) {
	ch := make(chan Event, buffer)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		close(ch)
		return ch, func() {}
	}
	if f.subs == nil {
		f.subs = map[chan Event]struct{}{}
	}
	f.subs[ch] = struct{}{}
	return ch, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if _, ok := f.subs[ch]; ok {
			delete(f.subs, ch)
			close(ch)
		}
	}
}

func (f *feed) publish(e Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ch := range f.subs {
		select {
		case ch <- e:
		default:
		}
	}
}

// end closes all subscriptions.
func (f *feed) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	for ch := range f.subs {
		close(ch)
	}
	f.subs = nil
}
