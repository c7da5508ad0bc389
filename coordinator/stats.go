package coordinator

import (
	"fmt"
	"time"
)

// Stats is the coordinator at one moment.
type Stats struct {
	Ready  bool
	Reason string // one sentence why not

	Epoch    uint32
	Draining bool
	// Round is how long the round under way has been running; 0: none is.
	Round     time.Duration
	LastRound RoundReport

	Running, Waiting  int
	FreeBlocks        int
	Completed, Failed uint64 // requests
	PromptTokens      uint64
	GeneratedTokens   uint64
	Rounds            uint64 // of the group
	SequenceRounds    uint64 // decode rounds, each sequence counted
	Drafted, Accepted uint64 // drafted tokens
	Replays           uint64
	TokensPerSecond   float64        // over the last seconds
	Requests          []RequestStats // those that run
	// Suspicion is one sentence when the drafter network looks misread.
	Suspicion string
}

// MeanAcceptanceLength is the tokens of a decode round, on average.
func (s *Stats) MeanAcceptanceLength() float64 {
	if s.SequenceRounds == 0 {
		return 0
	}
	return 1 + float64(s.Accepted)/float64(s.SequenceRounds)
}

// RequestStats is one running request.
type RequestStats struct {
	ID              string
	State           string // prefill or decode
	PromptTokens    int
	GeneratedTokens int
	Age             time.Duration
}

// Stats returns the present state. It does not wait for the round under way.
func (c *Coordinator) Stats() Stats {
	live, gone := c.group.Epoch(), c.group.Err()
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.config.Now()
	s := c.stats
	s.Draining = c.draining
	if !c.roundStart.IsZero() {
		s.Round = now.Sub(c.roundStart)
	}
	s.TokensPerSecond = c.rate.perSecond(now)
	s.Ready, s.Reason = true, ""
	switch {
	case c.closed:
		s.Ready, s.Reason = false, "the coordinator is closed"
	case gone != nil:
		s.Ready, s.Reason = false, fmt.Sprintf("the group is gone: %v", gone)
	case s.Epoch == 0 || live == 0:
		s.Ready, s.Reason = false, "the group is forming"
	case s.Draining:
		s.Ready, s.Reason = false, "the server is draining"
	case s.Round > c.config.StallAfter:
		s.Ready, s.Reason = false, fmt.Sprintf("a round has been running for %v", s.Round.Round(time.Millisecond))
	}
	if live != 0 {
		s.Epoch = live // an idle loop may not have noticed yet
	}
	return s
}

// publish takes over what the loop knows, for Stats.
func (c *Coordinator) publish() {
	requests := make([]RequestStats, 0, len(c.scheduler.running))
	now := c.config.Now()
	for _, q := range c.scheduler.running {
		t := c.tasks[q.key]
		state := "decode"
		if q.prefilling() {
			state = "prefill"
		}
		requests = append(requests, RequestStats{
			ID: t.request.ID, State: state, PromptTokens: len(q.prompt), GeneratedTokens: len(q.generated), Age: now.Sub(t.submitted),
		})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Epoch = c.epoch
	c.stats.Running, c.stats.Waiting = len(c.scheduler.running), len(c.scheduler.waiting)
	c.stats.FreeBlocks = c.scheduler.freeBlocks
	c.stats.Requests = requests
}

// rateWindow is the time over which tokens per second are measured.
const rateWindow = 5 * time.Second

// tokenRate measures tokens per second over the last window or two.
type tokenRate struct {
	since           time.Time
	tokens          int
	previous        int
	previousElapsed time.Duration
}

func (r *tokenRate) add(now time.Time, tokens int) {
	if elapsed := now.Sub(r.since); elapsed > rateWindow {
		r.previous, r.previousElapsed = r.tokens, elapsed
		if elapsed > 2*rateWindow {
			r.previous, r.previousElapsed = 0, 0
		}
		r.since, r.tokens = now, 0
	}
	r.tokens += tokens
}

func (r *tokenRate) perSecond(now time.Time) float64 {
	elapsed := now.Sub(r.since)
	if r.since.IsZero() || elapsed > 2*rateWindow {
		return 0
	}
	elapsed += r.previousElapsed
	if elapsed <= 0 {
		return 0
	}
	return float64(r.tokens+r.previous) / elapsed.Seconds()
}
