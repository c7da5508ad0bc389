package coordinator

import (
	"sync"
	"time"
)

// GroupEvent is something that happened to the group or to a request.
type GroupEvent struct {
	Time    time.Time
	Kind    string
	Epoch   uint32
	Rank    int // -1: none
	Round   uint64
	Request string
	Message string
}

// The kinds of events that the coordinator itself publishes.
const (
	EventGroupReady     = "group_ready"
	EventGroupBroken    = "group_broken"
	EventGroupGone      = "group_gone"
	EventRequestFailed  = "request_failed"
	EventRequestReplays = "request_replays"
	EventDraining       = "draining"
	EventLowAcceptance  = "low_acceptance"
)

// eventBuffer is how many events a watcher may be behind before it misses some.
const eventBuffer = 256

// eventHub hands events to whoever watches. A watcher that does not keep up
// loses the newest.
type eventHub struct {
	mu       sync.Mutex
	watchers map[chan GroupEvent]struct{}
}

// watch returns a channel of the events from now on, until stop is called.
func (h *eventHub) watch() (events <-chan GroupEvent, stop func()) {
	channel := make(chan GroupEvent, eventBuffer)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watchers == nil {
		h.watchers = make(map[chan GroupEvent]struct{})
	}
	h.watchers[channel] = struct{}{}
	return channel, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.watchers, channel)
	}
}

func (h *eventHub) publish(e GroupEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for channel := range h.watchers {
		select {
		case channel <- e:
		default:
		}
	}
}
