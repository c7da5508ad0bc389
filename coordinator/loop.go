package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/octet-run/octet/actors"
	"github.com/octet-run/octet/speculation"
)

// run is the loop: between rounds it does what was posted, then runs the next
// round, one at a time. It ends with ctx.
func (c *Coordinator) run(ctx context.Context) {
	defer close(c.done)
	for ctx.Err() == nil {
		c.handleInbox()
		switch {
		case c.epoch == 0:
			c.form(ctx)
		case c.scheduler.idle():
			select {
			case <-c.signal:
			case <-ctx.Done():
			}
		default:
			c.round(ctx)
		}
	}
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.handleInbox()
	c.endAll(FinishError, ErrClosed)
}

// handleInbox does what was posted since the last round.
func (c *Coordinator) handleInbox() {
	c.mu.Lock()
	inbox := c.inbox
	c.inbox = nil
	c.mu.Unlock()
	if len(inbox) == 0 {
		return
	}
	for _, do := range inbox {
		do()
	}
	c.publish()
}

// form waits for a group to serve. Requests are taken and cancelled meanwhile;
// when there never will be a group, they end.
func (c *Coordinator) form(ctx context.Context) {
	if c.gone != nil {
		c.endAll(FinishError, &GroupError{Err: c.gone})
		select {
		case <-c.signal:
		case <-ctx.Done():
		}
		return
	}
	type formed struct {
		epoch uint32
		err   error
	}
	result := make(chan formed, 1)
	go func() {
		epoch, err := c.nextEpoch(ctx)
		result <- formed{epoch, err}
	}()
	for {
		select {
		case <-c.signal:
			c.handleInbox()
		case f := <-result:
			c.formed(ctx, f.epoch, f.err)
			return
		}
	}
}

// nextEpoch waits for an epoch that is not the one that ended: a group may take a
// moment to notice.
func (c *Coordinator) nextEpoch(ctx context.Context) (uint32, error) {
	for {
		epoch, err := c.group.WaitServing(ctx)
		if err != nil || epoch != c.lastEpoch {
			return epoch, err
		}
		select {
		case <-time.After(epochPoll):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// epochPoll is how often a group is looked at that still serves an epoch that ended.
const epochPoll = 2 * time.Millisecond

func (c *Coordinator) formed(ctx context.Context, epoch uint32, err error) {
	if err != nil {
		if ctx.Err() == nil {
			c.mu.Lock()
			c.gone = err
			c.mu.Unlock()
			c.events.publish(c.event(EventGroupGone, err.Error()))
		}
		return
	}
	c.epoch, c.seq = epoch, 0
	c.publish()
	c.events.publish(c.event(EventGroupReady, fmt.Sprintf("the group serves in epoch %d", epoch)))
}

// broken takes the end of an epoch: every running request starts over in the next,
// unless it has done so too often.
func (c *Coordinator) broken(err error) {
	c.events.publish(c.event(EventGroupBroken, err.Error()))
	if !errors.Is(err, actors.ErrGroupBroken) && !errors.Is(err, actors.ErrStaleEpoch) {
		c.group.Break(-1, err.Error()) // the ranks' state is not what ours is
	}
	c.lastEpoch, c.epoch = c.epoch, 0
	c.scheduler.reset()
	for _, t := range c.running() {
		if t.finish.Replays >= c.config.Replays {
			c.end(t, FinishError, &GroupError{Replays: t.finish.Replays, Err: err})
			continue
		}
		t.finish.Replays++
		c.count(func(s *Stats) { s.Replays++ })
		e := c.event(EventRequestReplays, fmt.Sprintf("goes on after %d generated tokens", len(t.sequence.generated)))
		e.Request = t.request.ID
		c.events.publish(e)
	}
	c.publish()
}

func (c *Coordinator) running() []*task {
	tasks := make([]*task, 0, len(c.scheduler.running))
	for _, q := range c.scheduler.running {
		tasks = append(tasks, c.tasks[q.key])
	}
	return tasks
}

// submit queues a request, or takes up one from the log.
func (c *Coordinator) submit(r *Request, stream *Stream) error {
	if old, ok := c.names[r.ID]; ok {
		// Who asks to go on has lost the stream, even if nobody has noticed.
		if r.Resume == 0 && !old.orphan {
			return refuse("request_id", "%s is running", r.ID)
		}
		c.end(old, FinishCancelled, nil)
	}
	var record Record
	if r.Resume > 0 {
		record, _ = c.config.Log.Find(r.ID)
	}
	return c.admit(r, stream, record)
}

// takeUp goes on with the requests that the process before this one has left. They
// run for nobody until their clients ask for them.
func (c *Coordinator) takeUp() {
	for _, record := range c.config.Log.Unfinished() {
		r := record.Request
		if err := c.config.normalise(&r); err != nil {
			continue // it was taken under other limits; its client will hear of it
		}
		stream := c.newStream(&r)
		if err := c.admit(&r, stream, record); err != nil {
			return // the queue is full: the rest waits in the log for its clients
		}
		if t, ok := c.names[r.ID]; ok {
			t.orphan = true
		}
	}
}

// admit queues a request that goes on from a record, which may be empty.
func (c *Coordinator) admit(r *Request, stream *Stream, record Record) error {
	t := c.newTask(r, stream)
	if r.Drafting.Mode == ModeAuto {
		t.controller = c.drafting.controller(r.Drafting.Shape)
	}
	if err := c.enqueue(t); err != nil {
		return err
	}
	if err := c.config.Log.Begin(r); err != nil {
		c.end(t, FinishError, err)
		return nil
	}
	if len(record.Tokens) > 0 {
		c.replayLogged(t, record)
	}
	return nil
}

// replayLogged gives a request the tokens that the log has of it.
func (c *Coordinator) replayLogged(t *task, record Record) {
	kept, ended := t.take(record.Tokens, record.Logprobs)
	t.given = kept
	if err := c.log(t, record.Tokens[:kept], record.Logprobs); err != nil {
		c.end(t, FinishError, err)
	} else if ended {
		c.end(t, t.finish.Reason, nil)
	}
}

func (c *Coordinator) submitScore(r *Request, stream *Stream, call *scoreCall) error {
	t := c.newTask(r, stream)
	t.score, t.sequence.score = call, true
	return c.enqueue(t)
}

func (c *Coordinator) enqueue(t *task) error {
	c.mu.Lock()
	draining, gone := c.draining, c.gone
	c.mu.Unlock()
	switch {
	case draining:
		return ErrDraining
	case gone != nil:
		return &GroupError{Err: gone}
	case !c.scheduler.submit(&t.sequence):
		return ErrQueueFull
	}
	c.lastKey++
	t.sequence.key = c.lastKey
	c.tasks[t.sequence.key] = t
	c.names[t.request.ID] = t
	return nil
}

// end takes a task out and tells its client, who finds it counted: a client that
// asks for the status when it has its answer does not see its own request run.
func (c *Coordinator) end(t *task, reason FinishReason, err error) {
	if c.tasks[t.sequence.key] != t {
		return
	}
	delete(c.tasks, t.sequence.key)
	delete(c.names, t.request.ID)
	c.scheduler.finish(&t.sequence)
	c.count(func(s *Stats) {
		if reason == FinishError {
			s.Failed++
		} else {
			s.Completed++
		}
	})
	c.publish()
	t.finish.Reason, t.finish.Err = reason, err
	t.close(c.config.Now())
	if t.score == nil {
		// The record of an ended request is a convenience; the client has its answer.
		_ = c.config.Log.End(t.request.ID)
		c.config.Observer.RequestDone(t.request, &t.finish)
	}
	if err != nil && !errors.Is(err, ErrClosed) {
		e := c.event(EventRequestFailed, err.Error())
		e.Request = t.request.ID
		c.events.publish(e)
	}
}

func (c *Coordinator) endAll(reason FinishReason, err error) {
	for _, key := range slices.Sorted(maps.Keys(c.tasks)) { // the oldest first
		c.end(c.tasks[key], reason, err)
	}
}

func (c *Coordinator) count(change func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.stats)
}

// event is one of the loop's, in the epoch and round where it is.
func (c *Coordinator) event(kind, message string) GroupEvent {
	return GroupEvent{Time: c.config.Now(), Kind: kind, Epoch: c.epoch, Rank: -1, Round: c.seq, Message: message}
}

// choose adapts the drafting of a request to the scheduler.
func (c *Coordinator) choose(q *sequence, load speculation.Load, rows int) {
	c.drafting.choose(c.tasks[q.key], load, rows)
}
