package actors

import "time"

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
