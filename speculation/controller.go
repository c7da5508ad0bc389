package speculation

// Controller chooses, round by round, how one request is drafted: the option that
// gives the group the most tokens per unit of time, no draft included.
//
// It learns from the rounds it runs, and from probes of options that look worse.
// Probes are paid from a credit that grows by a small share of the time of every
// round, and a probe is charged as if it accepted nothing, so that probing costs
// at most that share.
type Controller struct {
	options    []Option // options[0] is without speculation
	acceptance Acceptance
	credit     float64
	idle       []int // rounds since an option of the same family was run
}

// Load is what the rest of the batch brings to the round.
type Load struct {
	Context int     // committed positions of all sequences, this one included
	Rows    int     // of the other sequences in the verify pass
	Tokens  float64 // expected of them
	Steps   int     // the most EAGLE-3 draft steps among them
}

const (
	// probeShare is the share of time that probes may cost.
	probeShare = 0.015
	// probeIdle is how many rounds an option is left alone before it is probed.
	probeIdle = 24
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
		return c.options[0] // the baseline is measured first
	}
	best, bestRate := 0, 0.0
	for i, o := range c.options {
		if rate := c.tokens(o, load) / c.time(cost, o, load); rate > bestRate {
			best, bestRate = i, rate
		}
	}
	chosen := best
	if probe, price := c.probe(cost, load, best, bestRate); probe != best && price <= c.credit {
		c.credit -= price
		chosen = probe
	}
	c.credit += probeShare * c.time(cost, c.options[best], load)
	for i, o := range c.options {
		c.idle[i]++
		if o.family() == c.options[chosen].family() {
			c.idle[i] = 0 // a probe of one chain tells about all
		}
	}
	return c.options[chosen]
}

func (c *Controller) tokens(o Option, load Load) float64 {
	return load.Tokens + c.acceptance.Tokens(o)
}

// time estimates a round. One that may go without a draft costs in between.
func (c *Controller) time(cost *Cost, o Option, load Load) float64 {
	plain := cost.Verify(load.Context, load.Rows+1)
	drafted := cost.Verify(load.Context, load.Rows+o.Nodes())
	return plain + c.acceptance.Filled(o)*(drafted-plain) + cost.Draft(load.Context, max(load.Steps, o.DraftSteps()))
}

// probe names the most promising option among those that have been idle for long,
// and what trying it costs at worst. With nothing to probe it returns best.
func (c *Controller) probe(cost *Cost, load Load, best int, bestRate float64) (probe int, price float64) {
	probe, top := best, 0.0
	for i, o := range c.options {
		if i == best || c.idle[i] < probeIdle {
			continue
		}
		time := c.time(cost, o, load)
		if rate := c.tokens(o, load) / time; rate > top {
			probe, top = i, rate
			price = max(0, time-(load.Tokens+1)/bestRate)
		}
	}
	return probe, price
}

// Observe takes the numbers of tokens that a round of that option drafted and accepted.
func (c *Controller) Observe(o Option, drafted, accepted int) {
	c.acceptance.Observe(o, drafted, accepted)
}

// Tokens is how many tokens the controller expects of an option.
func (c *Controller) Tokens(o Option) float64 { return c.acceptance.Tokens(o) }
