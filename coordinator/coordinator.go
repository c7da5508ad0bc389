package coordinator

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/octet-run/octet/actors/round"
)

// Coordinator takes requests and runs rounds until it is closed. Its methods may
// be called from any goroutine.
type Coordinator struct {
	config Config
	group  Group
	events eventHub
	cancel context.CancelFunc
	done   chan struct{}

	// The loop's own: no other goroutine touches these.
	scheduler *scheduler
	drafting  drafting
	tasks     map[uint64]*task
	names     map[string]*task
	lastKey   uint64
	epoch     uint32 // 0: no group
	lastEpoch uint32 // the one that ended last
	seq       uint64

	mu         sync.Mutex
	inbox      []func() // what the loop is to do between rounds
	signal     chan struct{}
	closed     bool
	draining   bool
	gone       error // why no group ever serves again
	stats      Stats
	rate       tokenRate
	roundStart time.Time
}

// New starts a coordinator for the group. Close ends it.
func New(config Config, group Group) (*Coordinator, error) {
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &Coordinator{
		config: config,
		group:  group,
		cancel: cancel,
		done:   make(chan struct{}),
		tasks:  make(map[uint64]*task),
		names:  make(map[string]*task),
		signal: make(chan struct{}, 1),
	}
	c.scheduler = newScheduler(&c.config)
	c.drafting.config = &c.config
	c.stats.FreeBlocks = config.Blocks
	c.inbox = append(c.inbox, c.takeUp)
	go c.run(ctx)
	return c, nil
}

// Config returns the configuration with its defaults filled in.
func (c *Coordinator) Config() Config { return c.config }

// Close cancels every request, waits for the round under way and stops the loop.
// The group is the caller's to close.
func (c *Coordinator) Close() {
	c.cancel()
	<-c.done
}

// Generate queues a request. When ctx ends before the stream does, the request is
// cancelled within one round.
func (c *Coordinator) Generate(ctx context.Context, r Request) (*Stream, error) {
	r.Prompt = slices.Clone(r.Prompt)
	if err := c.resume(&r); err != nil {
		return nil, err
	}
	if err := c.config.normalise(&r); err != nil {
		return nil, err
	}
	answer := make(chan error, 1)
	stream := c.newStream(&r)
	if !c.post(func() { answer <- c.submit(&r, stream) }) {
		return nil, ErrClosed
	}
	if err := c.wait(ctx, answer); err != nil {
		stream.Close()
		return nil, err
	}
	stream.onEnd(context.AfterFunc(ctx, func() {
		reason := FinishCancelled
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			reason = FinishDeadline
		}
		c.cancelStream(stream, reason)
	}))
	return stream, nil
}

func (c *Coordinator) newStream(r *Request) *Stream {
	stream := newStream(r.ID, r.Prompt)
	stream.cancel = func() { c.cancelStream(stream, FinishCancelled) }
	return stream
}

// resume takes the seed of a logged request that the client asks to go on with.
func (c *Coordinator) resume(r *Request) error {
	if r.Resume == 0 {
		return nil
	}
	if r.Resume < 0 || r.ID == "" {
		return refuse("resume_offset", "needs the request_id of the stream that was lost, and must not be negative")
	}
	record, ok := c.config.Log.Find(r.ID)
	if !ok {
		return nil
	}
	if !slices.Equal(record.Request.Prompt, r.Prompt) {
		return refuse("request_id", "%s had another prompt", r.ID)
	}
	r.Sampling.Seed = record.Request.Sampling.Seed
	return nil
}

// wait returns what the loop answered.
func (c *Coordinator) wait(ctx context.Context, answer <-chan error) error {
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-c.done:
		select {
		case err := <-answer:
			return err
		default:
			return ErrClosed
		}
	}
}

// Cancel ends the request of that ID and says whether it was running. It takes
// effect within one round.
func (c *Coordinator) Cancel(id string, reason FinishReason) bool {
	found, _ := ask(c, func() bool {
		t, ok := c.names[id]
		if ok {
			c.end(t, reason, nil)
		}
		return ok
	})
	return found
}

// cancelStream ends the request of a stream, whatever it is named.
func (c *Coordinator) cancelStream(stream *Stream, reason FinishReason) {
	c.post(func() {
		if t, ok := c.names[stream.id]; ok && t.stream == stream {
			c.end(t, reason, nil)
		}
	})
}

// Drain stops admission and returns when no request is left, or when ctx is done
// and what is left has been cut.
func (c *Coordinator) Drain(ctx context.Context) (finished, cut int) {
	c.mu.Lock()
	c.draining = true
	before := c.stats.Completed + c.stats.Failed
	c.mu.Unlock()
	c.post(func() { c.events.publish(c.event(EventDraining, "no new requests are taken")) }) // the loop knows the epoch

	for {
		left, ok := ask(c, func() int { return len(c.tasks) })
		if !ok || left == 0 {
			return c.finishedSince(before), 0
		}
		select {
		case <-ctx.Done():
			return c.finishedSince(before), c.cutAll()
		case <-time.After(drainPoll):
		}
	}
}

// drainPoll is how often Drain looks.
const drainPoll = 10 * time.Millisecond

func (c *Coordinator) finishedSince(before uint64) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int(c.stats.Completed + c.stats.Failed - before)
}

func (c *Coordinator) cutAll() int {
	cut, _ := ask(c, func() int {
		n := len(c.tasks)
		c.endAll(FinishCancelled, nil)
		return n
	})
	return cut
}

// Watch returns the events from now on, until stop is called.
func (c *Coordinator) Watch() (events <-chan GroupEvent, stop func()) { return c.events.watch() }

// Publish adds an event of the caller's to what watchers see.
func (c *Coordinator) Publish(e GroupEvent) { c.events.publish(e) }

// post hands the loop something to do between rounds, false when it is closed.
func (c *Coordinator) post(do func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.inbox = append(c.inbox, do)
	select {
	case c.signal <- struct{}{}:
	default:
	}
	return true
}

// ask has the loop answer between rounds, false when it is closed.
func ask[T any](c *Coordinator, do func() T) (answer T, ok bool) {
	answers := make(chan T, 1)
	if !c.post(func() { answers <- do() }) {
		return answer, false
	}
	select {
	case answer = <-answers:
		return answer, true
	case <-c.done:
		return answer, false
	}
}

// scoreCall collects the answer to Score.
type scoreCall struct {
	Argmax []int32   // of every row
	Logits []float32 // of the last row
}

// Score runs the tokens through the target and returns the argmax of every
// position and the logits of the last.
func (c *Coordinator) Score(ctx context.Context, prompt []int32) (argmax []int32, logits []float32, err error) {
	r := Request{Prompt: slices.Clone(prompt), MaxTokens: 1, Sampling: round.Sampling{Logprobs: -1}, Drafting: Drafting{Mode: ModeOff}}
	if err := c.config.normalise(&r); err != nil {
		return nil, nil, err
	}
	stream := c.newStream(&r)
	call := &scoreCall{}
	answer := make(chan error, 1)
	if !c.post(func() { answer <- c.submitScore(&r, stream, call) }) {
		return nil, nil, ErrClosed
	}
	defer stream.Close()
	if err := c.wait(ctx, answer); err != nil {
		return nil, nil, err
	}
	all, err := stream.Collect(ctx)
	if err != nil {
		return nil, nil, err
	}
	if all.Finish.Err != nil {
		return nil, nil, all.Finish.Err
	}
	return call.Argmax, call.Logits, nil
}
