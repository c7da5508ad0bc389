package coordinator

import (
	"slices"
	"time"

	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/speculation"
)

// task is a request that the coordinator has taken.
type task struct {
	sequence   sequence
	request    *Request
	stopIDs    []int32
	stream     *Stream
	output     *output
	controller *speculation.Controller // in mode auto
	score      *scoreCall              // for a Score instead of a generation

	orphan  bool  // nobody reads the stream
	event   Event // of the round under way
	context int   // positions before its root in the round under way
	finish  Finish
	given   int // tokens that came from no decode round: the prefill's and the log's

	submitted, started, first time.Time
}

func (c *Coordinator) newTask(r *Request, stream *Stream) *task {
	t := &task{
		request:   r,
		stopIDs:   r.StopIDs,
		stream:    stream,
		output:    newOutput(c.config.Tokenizer, r.Prompt, r.Stop, r.Resume),
		submitted: c.config.Now(),
	}
	if !r.IgnoreEOS {
		t.stopIDs = slices.Concat(r.StopIDs, c.config.EOS)
	}
	mode := r.Drafting.Mode
	t.sequence = sequence{
		prompt: r.Prompt, blocks: c.config.blocksFor(r), sampling: &r.Sampling,
		network: mode == ModeEagle3 || mode == ModeAuto && c.config.Eagle3,
	}
	t.finish.PromptTokens = len(r.Prompt)
	return t
}

// take accepts a run of tokens: it is cut, and what is kept goes to the log and
// to the event of this round. It returns how many tokens were kept, and ends the
// request's sequence where the run says so.
func (t *task) take(run []int32, logprobs []round.TokenLogprobs) (kept int, ended bool) {
	keep, end := speculation.Cut(run, t.stopIDs, t.request.MaxTokens-len(t.sequence.generated))
	for i, id := range run[:keep] {
		var logprob *round.TokenLogprobs
		if len(logprobs) > i {
			logprob = &logprobs[i]
		}
		isStop := end == speculation.FinishStop && i == keep-1
		event, stop := t.output.push(id, logprob, !isStop)
		t.event.add(event)
		t.sequence.generated = append(t.sequence.generated, id)
		if stop != "" {
			t.finish.Reason, t.finish.Stop = FinishStop, stop
			return i + 1, true
		}
	}
	switch end {
	case speculation.FinishStop:
		t.finish.Reason, t.finish.Stop = FinishStop, t.output.tokenText(run[keep-1])
	case speculation.FinishLength:
		t.finish.Reason = FinishLength
	case speculation.NotFinished:
		return keep, false
	}
	event, stop := t.output.flush()
	t.event.add(event)
	if stop != "" {
		t.finish.Reason, t.finish.Stop = FinishStop, stop
	}
	return keep, true
}

// close completes the Finish and ends the stream.
func (t *task) close(now time.Time) {
	f := &t.finish
	f.GeneratedTokens = t.output.offset
	f.trim(f.GeneratedTokens - t.given)
	f.Timings = t.timings(now)
	t.event.Finish = f
	t.stream.send(t.event)
}

// trim brings the tokens of the rounds down to those that were delivered.
func (f *Finish) trim(delivered int) {
	excess := -max(delivered, 0)
	for _, n := range f.Accepted {
		excess += n
	}
	for i := len(f.Accepted) - 1; i >= 0 && excess > 0; i-- {
		cut := min(excess, f.Accepted[i])
		f.Accepted[i] -= cut
		excess -= cut
	}
}

func (t *task) timings(now time.Time) RequestTimings {
	switch {
	case t.started.IsZero():
		return RequestTimings{Queued: now.Sub(t.submitted)}
	case t.first.IsZero():
		return RequestTimings{Queued: t.started.Sub(t.submitted), Prefill: now.Sub(t.started)}
	}
	return RequestTimings{
		Queued:     t.started.Sub(t.submitted),
		Prefill:    t.first.Sub(t.started),
		Decode:     now.Sub(t.first),
		FirstToken: t.first.Sub(t.submitted),
	}
}
