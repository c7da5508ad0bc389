package coordinator

import (
	"context"
	"fmt"
	"time"

	"github.com/octet-run/octet/actors"
	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/faults"
)

// round runs one round and gives its outcomes to their requests.
func (c *Coordinator) round(ctx context.Context) {
	if epoch := c.group.Epoch(); epoch != c.epoch {
		c.broken(fmt.Errorf("epoch %d ended between rounds: %w", c.epoch, actors.ErrStaleEpoch))
		return
	}
	if err := c.strike(faults.CoordinatorRound, c.seq+1); err != nil {
		c.broken(err)
		return
	}
	entries, owners := c.scheduler.plan(c.choose)
	if len(entries) == 0 {
		return
	}
	c.seq++
	start := c.config.Now()
	c.begin(start, owners)
	result, err := c.group.Do(ctx, &round.Round{Epoch: c.epoch, Entries: entries})
	elapsed := c.config.Now().Sub(start)
	c.setRoundStart(time.Time{})
	if ctx.Err() != nil {
		return
	}
	if err == nil && len(result.Outcomes) != len(entries) {
		err = fmt.Errorf("round %d has %d entries and came back with %d outcomes", c.seq, len(entries), len(result.Outcomes))
	}
	if err != nil {
		c.broken(err)
		return
	}
	c.apply(entries, owners, result, elapsed)
}

// begin notes what is known before a round.
func (c *Coordinator) begin(now time.Time, owners []*sequence) {
	for _, q := range owners {
		if q == nil {
			continue
		}
		t := c.tasks[q.key]
		t.context = q.toFill()
		if t.started.IsZero() {
			t.started = now
		}
	}
	c.setRoundStart(now)
}

func (c *Coordinator) setRoundStart(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.roundStart = now
}

func (c *Coordinator) apply(entries []round.Entry, owners []*sequence, result *round.Result, elapsed time.Duration) {
	report := RoundReport{Epoch: c.epoch, Elapsed: elapsed, Timings: result.Timings}
	var decoded []*task
	for i := range entries {
		if entries[i].Kind == round.Decode {
			decoded = append(decoded, c.tasks[owners[i].key])
			report.VerifyRows += 1 + int(result.Outcomes[i].Drafted)
		}
	}
	if len(decoded) > 0 && len(decoded) == len(entries) {
		c.drafting.learn(decoded, report.VerifyRows, elapsed, time.Duration(result.Timings.Draft))
	}
	for i := range entries {
		if owners[i] != nil {
			c.settle(c.tasks[owners[i].key], &entries[i], &result.Outcomes[i], &report)
		}
	}
	c.finishRound(report)
}

// settle gives one outcome to its request.
func (c *Coordinator) settle(t *task, entry *round.Entry, outcome *round.Outcome, report *RoundReport) {
	if outcome.Error != "" {
		c.end(t, FinishError, &SequenceError{Position: int(entry.Committed), Reason: outcome.Error})
		return
	}
	if entry.Kind == round.Decode {
		c.settleDecode(t, outcome, report)
		return
	}
	report.PrefillRows += len(entry.Tokens)
	c.count(func(s *Stats) { s.PromptTokens += uint64(len(entry.Tokens)) })
	t.sequence.filled += len(entry.Tokens)
	switch {
	case entry.Kind == round.Score && len(outcome.Argmax) != len(entry.Tokens):
		c.end(t, FinishError, &SequenceError{Position: t.sequence.filled, Reason: fmt.Sprintf("%d rows were scored instead of %d", len(outcome.Argmax), len(entry.Tokens))})
	case entry.Kind == round.Score:
		// In another epoch the rows come again from the first one on.
		t.score.Argmax = append(t.score.Argmax[:entry.Committed], outcome.Argmax...)
		if entry.Last {
			t.score.Logits = outcome.Logits
			c.end(t, FinishStop, nil)
		}
	case entry.Last && len(outcome.Tokens) != 1:
		c.end(t, FinishError, &SequenceError{Position: t.sequence.filled, Reason: fmt.Sprintf("the prefill yielded %d tokens instead of one", len(outcome.Tokens))})
	case entry.Last:
		t.given = 1
		c.accept(t, outcome, report)
	}
}

func (c *Coordinator) settleDecode(t *task, outcome *round.Outcome, report *RoundReport) {
	if err := checkPath(outcome, t.sequence.option.Nodes()); err != nil {
		c.end(t, FinishError, &SequenceError{Position: t.context, Reason: err.Error()})
		return
	}
	accepted := len(outcome.Path) - 1
	report.Sequences++
	report.Drafted += int(outcome.Drafted)
	report.Accepted += accepted
	t.finish.Drafted += int(outcome.Drafted)
	c.drafting.observe(t, int(outcome.Drafted), accepted)

	t.sequence.accepted = outcome.Path
	t.sequence.filled += len(outcome.Path)
	t.finish.Accepted = append(t.finish.Accepted, len(outcome.Tokens))
	c.accept(t, outcome, report)
}

// checkPath holds an acceptance against what it must be.
func checkPath(outcome *round.Outcome, tree int) error {
	path := outcome.Path
	if len(path) == 0 || path[0] != 0 || len(path) != len(outcome.Tokens) {
		return fmt.Errorf("a verify accepted the path %v with %d tokens", path, len(outcome.Tokens))
	}
	for i := 1; i < len(path); i++ {
		if path[i] <= path[i-1] || int(path[i]) >= tree {
			return fmt.Errorf("a verify of %d nodes accepted the path %v", tree, path)
		}
	}
	return nil
}

// accept cuts an outcome's tokens, logs what is kept and only then delivers it.
func (c *Coordinator) accept(t *task, outcome *round.Outcome, report *RoundReport) {
	if t.first.IsZero() {
		t.first = c.config.Now()
	}
	kept, ended := t.take(outcome.Tokens, outcome.Logprobs)
	report.Emitted += kept
	err := c.log(t, outcome.Tokens[:kept], outcome.Logprobs)
	if err == nil {
		err = c.strike(faults.CoordinatorEmit, c.seq)
	}
	if err != nil {
		t.event = Event{}
		c.end(t, FinishError, err)
		return
	}
	if ended {
		c.end(t, t.finish.Reason, nil)
		return
	}
	t.stream.send(t.event)
	t.event = Event{}
}

func (c *Coordinator) log(t *task, tokens []int32, logprobs []round.TokenLogprobs) error {
	if len(logprobs) > len(tokens) {
		logprobs = logprobs[:len(tokens)]
	}
	err := c.strike(faults.CoordinatorCommit, c.seq)
	if err == nil {
		err = c.config.Log.Append(t.request.ID, tokens, logprobs)
	}
	if err != nil {
		return fmt.Errorf("token log of request %s: %w", t.request.ID, err)
	}
	return nil
}

func (c *Coordinator) strike(p faults.Point, seq uint64) error {
	return faults.Strike(c.config.Faults.Point(p, faults.Where{Round: seq}))
}

func (c *Coordinator) finishRound(report RoundReport) {
	now := c.config.Now()
	c.mu.Lock()
	s := &c.stats
	s.LastRound = report
	s.Rounds++
	s.SequenceRounds += uint64(report.Sequences)
	s.Drafted += uint64(report.Drafted)
	s.Accepted += uint64(report.Accepted)
	s.GeneratedTokens += uint64(report.Emitted)
	c.rate.add(now, report.Emitted)
	suspicion := c.drafting.suspicion()
	isNew := suspicion != "" && s.Suspicion == ""
	s.Suspicion = suspicion
	c.mu.Unlock()
	if isNew {
		c.events.publish(c.event(EventLowAcceptance, suspicion))
	}
	c.publish()
	c.config.Observer.RoundDone(report)
}
