package speculation

// Controller chooses, round by round, how one request is drafted: the option that
// gives the group the most tokens per unit of time, no draft included.
//
// It learns from the rounds it runs, and from probes: of options that look better by
// a guess or on little evidence, and of options that were not run for long. What a
// probe loses against the best option is taken from the group's credit, which grows
// by a small share of the time of every round; none is made that could cost more
// than there is. So probing costs at most that share.
type Controller struct {
	options    []Option // options[0] is without speculation
	acceptance Acceptance
	idle       []int // rounds since an option was run

	probed int     // the option that the last round probed, 0: none
	gained float64 // tokens that it brought
}

// Load is what the rest of the batch brings to the round.
type Load struct {
	Context int     // committed positions of all sequences, this one included
	Rows    int     // of the other sequences in the verify pass
	Tokens  float64 // expected of them
	Steps   int     // the most EAGLE-3 draft steps among them
	Others  int     // how many they are
}

const (
	// probeShare is the share of time that probes may cost, startCredit what they
	// may cost to begin with, in rounds without a draft, and maxCredit what can be
	// saved up.
	probeShare  = 0.01
	startCredit = 4
	maxCredit   = 8
	// probeIdle is how many rounds an option is left alone before it is probed
	// whatever it looks like.
	probeIdle = 48
	// An option of fewer trials than fewTrials is probed sooner, when it looks almost
	// as good as the best.
	fewTrials  = 6
	almostBest = 0.85
	// worthDrafting is what a draft must promise, as a multiple of the rate without.
	worthDrafting = 1.02
)

// NewController starts a request that may run with the given options, at the
// acceptance rates of the group so far. No draft is always an option.
func NewController(options []Option, group *Acceptance) *Controller {
	all := append([]Option{{}}, options...)
	return &Controller{options: all, acceptance: group.Clone(), idle: make([]int, len(all))}
}

// Options lists what is worth choosing from for a drafter when shape is the
// largest tree: chains of every length up to its steps, the tree, and half of it.
func Options(by Drafter, shape Shape) []Option {
	var options []Option
	if by == NoDrafter || shape.IsZero() {
		return nil
	}
	for steps := 1; steps <= shape.Steps && steps < MaxNodes; steps++ {
		options = append(options, Option{by, Chain(steps)})
	}
	if by != Eagle3 || shape.TopK == 1 {
		return options
	}
	half := Shape{TopK: shape.TopK, Steps: (shape.Steps + 1) / 2, Nodes: (shape.Nodes + 1) / 2}
	if half.Validate() == nil && half != shape {
		options = append(options, Option{by, half})
	}
	return append(options, Option{by, shape})
}

// Choose picks the option of the next round.
func (c *Controller) Choose(cost *Cost, load Load) Option {
	if !cost.Measured(load.Context) {
		c.probed = 0
		return c.options[0] // the baseline is measured first
	}
	estimates := make([]estimate, len(c.options))
	for i, o := range c.options {
		estimates[i] = c.estimate(cost, o, load)
	}
	baseline := estimates[0].time
	if !cost.opened {
		cost.credit, cost.opened = startCredit*baseline, true
	}
	best := choose(estimates)
	c.settle(cost, estimates, load, best)
	cost.credit += probeShare * estimates[best].time / float64(1+load.Others)
	cost.credit = min(cost.credit, maxCredit*baseline)

	chosen := best
	probe := c.probe(estimates, best)
	if probe != best && loss(estimates[probe].time, load.Tokens+1, estimates[best]) <= cost.credit {
		c.probed, c.gained, chosen = probe, 1, probe
	}
	for i := range c.idle {
		c.idle[i]++
	}
	c.idle[chosen] = 0
	return c.options[chosen]
}

// choose is the best option whose cost is known. A draft must promise a little more
// than no draft: within the noise, none is the safe choice.
func choose(estimates []estimate) int {
	best, top := 0, estimates[0].rate()*worthDrafting
	for i, e := range estimates {
		if i > 0 && e.known && e.rate() > top {
			best, top = i, e.rate()
		}
	}
	return best
}

// estimate is what a round with an option is expected to bring and to take.
type estimate struct {
	tokens, time float64
	known        bool // time is no guess
}

func (e estimate) rate() float64 { return e.tokens / e.time }

// estimate adds up a round. One that may go without a draft costs in between.
func (c *Controller) estimate(cost *Cost, o Option, load Load) estimate {
	plain, _ := cost.Verify(load.Context, load.Rows+1)
	full, known := cost.Verify(load.Context, load.Rows+o.Nodes())
	draft, knownDraft := cost.Draft(load.Context, max(load.Steps, o.DraftSteps()))
	filled, tokens := c.acceptance.expect(o)
	return estimate{
		tokens: load.Tokens + tokens,
		time:   plain + filled*(full-plain) + draft,
		known:  o.Shape.IsZero() || known && knownDraft,
	}
}

// loss is what a round loses against running the best option for the same tokens.
func loss(time, tokens float64, best estimate) float64 {
	return time - tokens/best.rate()
}

// settle charges the last probe, now that it is known what it took and brought.
func (c *Controller) settle(cost *Cost, estimates []estimate, load Load, best int) {
	if c.probed == 0 {
		return
	}
	cost.credit -= loss(estimates[c.probed].time, load.Tokens+c.gained, estimates[best])
	c.probed = 0
}

// probe names the most promising option among those that are worth a probe; with
// none, best.
func (c *Controller) probe(estimates []estimate, best int) int {
	probe, top := best, 0.0
	for i, e := range estimates {
		if i != best && e.rate() > top && c.worthProbing(i, e, estimates[best]) {
			probe, top = i, e.rate()
		}
	}
	return probe
}

func (c *Controller) worthProbing(i int, e, best estimate) bool {
	return c.idle[i] >= probeIdle ||
		!e.known && e.rate() > best.rate() ||
		c.acceptance.trials(c.options[i]) < fewTrials && e.rate() > almostBest*best.rate()
}

// Observe takes the numbers of tokens that a round of that option drafted and accepted.
func (c *Controller) Observe(o Option, drafted, accepted int) {
	c.gained = 1 + float64(accepted)
	c.acceptance.Observe(o, drafted, accepted)
}

// Tokens is how many tokens the controller expects of an option.
func (c *Controller) Tokens(o Option) float64 { return c.acceptance.Tokens(o) }
