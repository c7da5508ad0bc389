package coordinator

import (
	"context"
	"io"
	"strings"
	"sync"
)

// Stream is what a client reads of its request. Events wait in it without limit
// (a request's tokens are bounded), so a slow client never holds up a round.
type Stream struct {
	id     string
	prompt []int32
	cancel func()

	mu     sync.Mutex
	events []Event
	ended  bool
	detach func() bool // takes the stream off its context
	signal chan struct{}
}

func newStream(id string, prompt []int32) *Stream {
	return &Stream{id: id, prompt: prompt, signal: make(chan struct{}, 1)}
}

// ID is the request's name.
func (s *Stream) ID() string { return s.id }

// Prompt is the request's prompt tokens.
func (s *Stream) Prompt() []int32 { return s.prompt }

// Next returns the next event, io.EOF after the one with Finish, or ctx's error.
func (s *Stream) Next(ctx context.Context) (Event, error) {
	for {
		if event, ok, err := s.take(); ok || err != nil {
			return event, err
		}
		select {
		case <-s.signal:
		case <-ctx.Done():
			return Event{}, ctx.Err()
		}
	}
}

// Close ends the request if it still runs.
func (s *Stream) Close() { s.cancel() }

// Collect reads the stream to its end and returns all of it in one event.
func (s *Stream) Collect(ctx context.Context) (Event, error) {
	var all Event
	var text strings.Builder
	for {
		event, err := s.Next(ctx)
		text.WriteString(event.Text)
		event.Text = ""
		all.add(event)
		if err != nil || event.Finish != nil {
			all.Text = text.String()
			return all, err
		}
	}
}

// add appends what comes after e.
func (e *Event) add(next Event) {
	if len(e.Tokens) == 0 {
		e.Offset = next.Offset
	}
	e.Tokens = append(e.Tokens, next.Tokens...)
	e.Text += next.Text
	e.Finish = next.Finish
}

func (e *Event) empty() bool { return len(e.Tokens) == 0 && e.Text == "" && e.Finish == nil }

// onEnd has detach called when the stream ends.
func (s *Stream) onEnd(detach func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		detach()
		return
	}
	s.detach = detach
}

func (s *Stream) take() (event Event, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.events) > 0 {
		event, s.events = s.events[0], s.events[1:]
		return event, true, nil
	}
	if s.ended {
		return Event{}, false, io.EOF
	}
	return Event{}, false, nil
}

func (s *Stream) send(event Event) {
	if event.empty() {
		return
	}
	s.mu.Lock()
	s.events = append(s.events, event)
	if event.Finish != nil {
		s.ended = true
		if s.detach != nil {
			s.detach()
		}
	}
	s.mu.Unlock()
	select {
	case s.signal <- struct{}{}:
	default:
	}
}
