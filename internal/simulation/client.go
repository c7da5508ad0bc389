package simulation

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/octet-run/octet/coordinator"
)

// client is one user: it sends a request, reads the stream, and when the
// connection is lost comes back with the request's id and how many tokens it has.
type client struct {
	w       *world
	name    string
	request coordinator.Request
	limit   time.Duration // of the whole request; 0: none
	want    []int32       // what it must get

	began    time.Duration
	attempts int
	cancel   context.CancelFunc // of the attempt under way
	ended    bool
	seen     int // tokens that were checked

	mu     sync.Mutex // guards what the attempt's goroutine writes
	busy   bool
	got    []int32
	broken string // what was wrong with the stream
	finish *coordinator.Finish
	err    error         // how the last attempt ended, if without a Finish
	slow   time.Duration // the next read comes so much later
}

// connect starts an attempt.
func (c *client) connect(at *incarnation) {
	c.w.clock.settle()
	if c.attempts++; c.attempts == 1 {
		c.began = c.w.clock.now
	}
	ctx := context.Background()
	if c.limit > 0 {
		ctx, c.cancel = context.WithTimeout(ctx, max(c.began+c.limit-c.w.clock.now, 1))
	} else {
		ctx, c.cancel = context.WithCancel(ctx)
	}
	c.busy, c.err = true, nil
	r := c.request
	r.Resume = len(c.got)
	go func() {
		err := c.attempt(ctx, at, r)
		c.mu.Lock()
		c.busy, c.err = false, err
		c.mu.Unlock()
		c.w.clock.poke()
	}()
	c.w.clock.settle()
}

var errGone = errors.New("the server is gone")

// attempt reads a stream to its end. It runs outside.
func (c *client) attempt(ctx context.Context, at *incarnation, r coordinator.Request) error {
	stream, err := at.coordinator.Generate(ctx, r)
	if at.dead.Load() {
		return errGone
	}
	if err != nil {
		return err
	}
	// Who has a limit reads on until the server says that it is over.
	reading := context.WithoutCancel(ctx)
	if c.limit == 0 {
		reading = ctx
	}
	for {
		c.mu.Lock()
		slow := c.slow
		c.slow = 0
		c.mu.Unlock()
		time.Sleep(slow)
		event, err := stream.Next(reading)
		if at.dead.Load() {
			return errGone
		}
		if err == nil {
			err = reading.Err() // it hung up before this came
		}
		if err != nil {
			return err
		}
		if c.take(event) {
			return nil
		}
	}
}

// take checks and keeps what came, and reports whether it was the last.
func (c *client) take(e coordinator.Event) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.finish != nil {
		c.broken = "an event after the end"
	}
	if len(e.Tokens) > 0 && e.Offset != len(c.got) {
		c.broken = "tokens from another offset than those that it had"
	}
	for _, t := range e.Tokens {
		c.got = append(c.got, t.ID)
	}
	c.finish = e.Finish
	return e.Finish != nil
}

// look takes up, on the clock, what the attempt has come to.
func (c *client) look() {
	c.mu.Lock()
	busy, finish, err, got := c.busy, c.finish, c.err, len(c.got)
	c.mu.Unlock()
	if got != c.seen {
		c.w.note("%s has %d tokens", c.name, got)
		c.seen = got
	}
	if busy || c.cancel == nil || c.ended {
		return
	}
	c.cancel()
	c.cancel = nil
	var refused *coordinator.RequestError
	switch {
	case finish != nil:
		c.end()
	case errors.Is(err, errGone), errors.Is(err, context.Canceled), errors.Is(err, coordinator.ErrClosed),
		errors.Is(err, coordinator.ErrQueueFull), errors.As(err, &refused) && refused.Param == "request_id":
		c.w.clock.soon(time.Millisecond, 30*time.Millisecond, c.reconnect)
	default:
		c.end()
	}
}

func (c *client) reconnect() {
	if at := c.w.server; at != nil && !at.dead.Load() {
		c.connect(at)
		return
	}
	c.w.clock.soon(5*time.Millisecond, 30*time.Millisecond, c.reconnect)
}

func (c *client) end() {
	c.ended = true
	c.w.clients--
	c.w.ends(c)
}

// hangUp loses the connection. A client with a limit waits for the server's word.
func (c *client) hangUp() {
	if c.cancel != nil && c.limit == 0 {
		c.cancel()
		c.w.clock.settle()
	}
}
