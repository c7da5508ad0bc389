package coordinator

import (
	"fmt"
	"time"

	"github.com/octet-run/octet/speculation"
)

// drafting is what the group has learnt about cost and acceptance.
type drafting struct {
	config     *Config
	cost       speculation.Cost
	acceptance speculation.Acceptance

	drafts, accepted int // rounds drafted by the network, and what was accepted in them
}

// controller starts the controller of a request in mode auto.
func (d *drafting) controller(shape speculation.Shape) *speculation.Controller {
	var options []speculation.Option
	if d.config.Eagle3 {
		options = speculation.Options(speculation.Eagle3, shape)
	}
	options = append(options, speculation.Options(speculation.PromptLookup, shape)...)
	return speculation.NewController(options, &d.acceptance)
}

// choose sets how the request is drafted in the next round.
func (d *drafting) choose(t *task, load speculation.Load, rows int) {
	q := &t.sequence
	var o speculation.Option
	switch t.request.Drafting.Mode {
	case ModeEagle3:
		o = speculation.Option{By: speculation.Eagle3, Shape: t.request.Drafting.Shape}
	case ModeNGram:
		o = speculation.Option{By: speculation.PromptLookup, Shape: speculation.Chain(t.request.Drafting.Shape.Steps)}
	case ModeAuto:
		o = t.controller.Choose(&d.cost, load)
	}
	// The deepest node must have a position in the context, and the tree its rows.
	o.Shape = o.Shape.Limit(d.config.Context - 1 - q.toFill())
	if o.Shape.IsZero() || o.Shape.Nodes > rows {
		o = speculation.Option{}
	}
	q.option = o
	q.expected = 1
	if t.controller != nil {
		q.expected = t.controller.Tokens(o)
	}
}

// learn takes the measurement of a round of decoding sequences alone: the rows that
// its verify pass had, its time on the coordinator's clock, its draft's on rank 0's.
func (d *drafting) learn(batch []*task, rows int, total, draft time.Duration) {
	context, steps := 0, 0
	for _, t := range batch {
		context += t.context
		steps = max(steps, t.sequence.option.DraftSteps())
	}
	draft = min(max(draft, 0), total)
	d.cost.Observe(context, rows, steps, float64(total-draft), float64(draft))
}

// observe takes how many tokens a round of a request drafted and accepted.
func (d *drafting) observe(t *task, drafted, accepted int) {
	o := t.sequence.option
	d.acceptance.Observe(o, drafted, accepted)
	if t.controller != nil {
		t.controller.Observe(o, drafted, accepted)
	}
	if o.By == speculation.Eagle3 && drafted > 0 {
		d.drafts++
		d.accepted += accepted
	}
}

// A drafter network that reads the wrong layers of the target still works, and
// almost nothing of it is accepted.
const (
	suspectAfter  = 200  // rounds
	suspectLength = 1.08 // tokens a round
)

// suspicion is one sentence when the drafter network looks misread, once there are
// enough rounds to tell.
func (d *drafting) suspicion() string {
	if d.drafts < suspectAfter {
		return ""
	}
	length := 1 + float64(d.accepted)/float64(d.drafts)
	if length > suspectLength {
		return ""
	}
	return fmt.Sprintf("the drafter's tokens are hardly ever accepted (%.2f tokens a round over %d rounds): its captured layers may be listed in the other convention, or it belongs to another model", length, d.drafts)
}
