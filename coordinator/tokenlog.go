package coordinator

import (
	"slices"
	"sync"

	"github.com/octet-run/octet/actors/round"
)

// Record is what a request needs to go on with exactly the tokens it would have
// had, in another epoch of the group or another process: sampling draws its coins
// by seed and position, so no other state is needed.
type Record struct {
	Request Request
	Tokens  []int32 // accepted so far
	// Logprobs is parallel to Tokens where they were asked for.
	Logprobs []round.TokenLogprobs
}

// TokenLog keeps the accepted tokens of every request. The coordinator appends
// before it delivers, so that what a client has seen is in the log. Calls come
// from one goroutine, Find from any.
type TokenLog interface {
	// Begin opens the record of a request; a record of the same ID is replaced.
	Begin(r *Request) error
	// Append adds accepted tokens, and their log-probabilities where asked for.
	Append(id string, tokens []int32, logprobs []round.TokenLogprobs) error
	// End says that the request is over. The record may be kept to be resumed.
	End(id string) error
	// Find returns a copy of a record, false if there is none.
	Find(id string) (Record, bool)
	// Unfinished are the requests that were running when the process before this
	// one went away.
	Unfinished() []Record
}

// MemoryLog is a TokenLog that lives as long as the process. It keeps the records
// of the requests that ended last.
type MemoryLog struct {
	mu      sync.Mutex
	keep    int
	records map[string]*Record
	ended   []string // the oldest first
}

// NewMemoryLog returns a log that keeps up to keep ended records.
func NewMemoryLog(keep int) *MemoryLog {
	return &MemoryLog{keep: keep, records: make(map[string]*Record)}
}

// Begin implements TokenLog.
func (l *MemoryLog) Begin(r *Request) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(r.ID)
	l.records[r.ID] = &Record{Request: *r}
	return nil
}

// Append implements TokenLog.
func (l *MemoryLog) Append(id string, tokens []int32, logprobs []round.TokenLogprobs) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if record, ok := l.records[id]; ok {
		record.Tokens = append(record.Tokens, tokens...)
		record.Logprobs = append(record.Logprobs, logprobs...)
	}
	return nil
}

// End implements TokenLog.
func (l *MemoryLog) End(id string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = append(l.ended, id)
	if len(l.ended) > l.keep {
		l.forget(l.ended[0])
	}
	return nil
}

// Find implements TokenLog.
func (l *MemoryLog) Find(id string) (Record, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	record, ok := l.records[id]
	if !ok {
		return Record{}, false
	}
	found := *record
	found.Tokens = slices.Clone(record.Tokens)
	found.Logprobs = slices.Clone(record.Logprobs)
	return found, true
}

// Unfinished implements TokenLog: there was no process before.
func (l *MemoryLog) Unfinished() []Record { return nil }

// forget drops a record and its place among the ended ones.
func (l *MemoryLog) forget(id string) {
	delete(l.records, id)
	l.ended = slices.DeleteFunc(l.ended, func(ended string) bool { return ended == id })
}
