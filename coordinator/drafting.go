package coordinator

import (
	"time"

	"github.com/octet-run/octet/speculation"
)

// drafting is what the group has learnt about cost and acceptance.
type drafting struct {
	config     *Config
	cost       speculation.Cost
	acceptance speculation.Acceptance
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

// learn takes what a round of decoding sequences alone has shown. total is on the
// coordinator's clock, draft on rank 0's.
func (d *drafting) learn(batch []*task, total, draft time.Duration) {
	context, rows, steps := 0, 0, 0
	for _, t := range batch {
		context += t.context
		rows += nodes(t.sequence.option)
		steps = max(steps, draftSteps(t.sequence.option))
	}
	draft = min(max(draft, 0), total)
	d.cost.Observe(context, rows, steps, float64(total-draft), float64(draft))
}

// accepted takes how many drafted tokens a round of a request accepted.
func (d *drafting) accepted(t *task, accepted int) {
	o := t.sequence.option
	d.acceptance.Observe(o, accepted)
	if t.controller != nil {
		t.controller.Observe(o, accepted)
	}
}
