package speculation

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// world is a box and a drafter with known cost and acceptance.
type world struct {
	name   string
	verify func(rows int) float64
	step   float64                        // one draft step
	rate   func(round, depth int) float64 // of a chain, given that the parent was accepted
	noise  float64
	seed   uint64
}

// accepted draws how many drafted tokens of o a round accepts. A tree tries twice at each depth.
func (w world) accepted(rng *rand.Rand, round int, o Option) int {
	for depth := range o.Shape.Steps {
		p := w.rate(round, depth)
		if o.Shape.TopK > 1 {
			p = 1 - (1-p)*(1-p)
		}
		if rng.Float64() >= p {
			return depth
		}
	}
	return o.Shape.Steps
}

func (w world) time(o Option) (verify, draft float64) {
	return w.verify(o.Nodes()), w.step * float64(o.DraftSteps())
}

// run generates tokens with choose and returns tokens per unit of time. Times are
// the true ones; the controller sees them with noise.
func (w world) run(tokens int, choose func() Option, observe func(o Option, accepted int, verify, draft float64)) float64 {
	rng := rand.New(rand.NewPCG(w.seed, 1))
	total, produced := 0.0, 0
	for round := 0; produced < tokens; round++ {
		o := choose()
		accepted := w.accepted(rng, round, o)
		verify, draft := w.time(o)
		total += verify + draft
		produced += accepted + 1
		jitter := func() float64 {
			if rng.IntN(50) == 0 {
				return 1 + 8*w.noise // a descheduled round
			}
			return 1 + w.noise*(2*rng.Float64()-1)
		}
		observe(o, accepted, verify*jitter(), draft*jitter())
	}
	return float64(produced) / total
}

func (w world) fixed(o Option, tokens int) float64 {
	return w.run(tokens, func() Option { return o }, func(Option, int, float64, float64) {})
}

// controlled runs several requests one after the other, as a group does.
func (w world) controlled(options []Option, requests, tokens int) float64 {
	var cost Cost
	var group Acceptance
	time := 0.0
	for request := range requests {
		w := w
		w.seed += uint64(request) * 977
		c := NewController(options, &group)
		rate := w.run(tokens,
			func() Option { return c.Choose(&cost, Load{}) },
			func(o Option, accepted int, verify, draft float64) {
				cost.Observe(0, o.Nodes(), o.DraftSteps(), verify, draft)
				c.Observe(o, o.Nodes()-1, accepted)
				group.Observe(o, o.Nodes()-1, accepted)
			})
		time += float64(tokens) / rate
	}
	return float64(requests*tokens) / time
}

func constant(p float64) func(int, int) float64 { return func(int, int) float64 { return p } }

func affine(fixed, perRow float64) func(int) float64 {
	return func(rows int) float64 { return fixed + perRow*float64(rows) }
}

func TestControllerIsNeverSlowerThanTheBaselineAndNearTheBest(t *testing.T) {
	options := Options(Eagle3, Shape{TopK: 4, Steps: 5, Nodes: 16})
	const requests, tokens = 10, 400
	for _, w := range []world{
		{name: "weights dominate, good drafter", verify: affine(10, 0.05), step: 0.3, rate: constant(0.75)},
		{name: "weights dominate, useless drafter", verify: affine(10, 0.05), step: 0.3, rate: constant(0)},
		{name: "rows dominate, good drafter", verify: affine(1, 1), step: 0.2, rate: constant(0.75)},
		{name: "rows dominate, poor drafter", verify: affine(1, 1), step: 0.2, rate: constant(0.2)},
		{name: "draft is dear", verify: affine(10, 0.1), step: 8, rate: constant(0.6)},
		{name: "cliff after four rows", verify: func(rows int) float64 {
			if rows > 4 {
				return 40
			}
			return 10
		}, step: 0.3, rate: constant(0.8)},
		{name: "all-reduce of the issue", verify: affine(29, 0.15), step: 4, rate: constant(0.3)},
		{name: "rate falls with depth", verify: affine(8, 0.4), step: 0.5, rate: func(_, depth int) float64 { return 0.9 - 0.2*float64(depth) }},
	} {
		for _, noise := range []float64{0, 0.2} {
			t.Run(fmt.Sprintf("%s, noise %g", w.name, noise), func(t *testing.T) {
				w.noise, w.seed = noise, 5
				baseline := w.fixed(Option{}, requests*tokens)
				best, bestOption := baseline, Option{}
				for _, o := range options {
					if rate := w.fixed(o, requests*tokens); rate > best {
						best, bestOption = rate, o
					}
				}
				got := w.controlled(options, requests, tokens)
				t.Logf("%.4f of the baseline, %.4f of the best (%v)", got/baseline, got/best, bestOption)
				if got < 0.97*baseline {
					t.Errorf("%.3f of the baseline", got/baseline)
				}
				if got < 0.92*best {
					t.Errorf("%.3f of the best, which is %v", got/best, bestOption)
				}
			})
		}
	}
}

func TestAColdRequestLosesLittleWhereDraftingDoesNotPay(t *testing.T) {
	options := append(Options(Eagle3, Shape{TopK: 4, Steps: 5, Nodes: 16}), Options(PromptLookup, Chain(5))...)
	for _, w := range []world{
		{name: "a small model in the cache", verify: affine(0.6, 0.9), step: 1.5, rate: constant(0.6)},
		{name: "draft is very dear", verify: affine(10, 0.1), step: 30, rate: constant(0.6)},
		{name: "useless drafter", verify: affine(10, 0.3), step: 1, rate: constant(0)},
	} {
		t.Run(w.name, func(t *testing.T) {
			total, runs := 0.0, 20
			for seed := range runs {
				w.seed = uint64(seed)
				total += w.controlled(options, 1, 100) / w.fixed(Option{}, 100) / float64(runs)
			}
			t.Logf("%.3f of the baseline", total)
			if total < 0.9 {
				t.Errorf("the first hundred tokens came at %.3f of the baseline's rate", total)
			}
		})
	}
}

func TestControllerComesBackWhenDraftingPaysAgain(t *testing.T) {
	options := Options(Eagle3, Chain(5))
	w := world{verify: affine(10, 0.3), step: 0.5, seed: 3, rate: func(round, _ int) float64 {
		if round < 600 {
			return 0.02
		}
		return 0.85
	}}
	var cost Cost
	c := NewController(options, new(Acceptance))
	rounds, drafted, late := 0, 0, 0
	w.run(6000, func() Option {
		o := c.Choose(&cost, Load{})
		if !o.Shape.IsZero() {
			switch {
			case rounds >= 100 && rounds < 600:
				drafted++
			case rounds >= 900:
				late++
			}
		}
		rounds++
		return o
	}, func(o Option, accepted int, verify, draft float64) {
		cost.Observe(0, o.Nodes(), o.DraftSteps(), verify, draft)
		c.Observe(o, o.Nodes()-1, accepted)
	})
	if drafted == 0 || drafted > 60 {
		t.Errorf("drafted in %d of 500 rounds while it did not pay; want a few probes", drafted)
	}
	if share := float64(late) / float64(rounds-900); share < 0.9 {
		t.Errorf("drafted in %.2f of the rounds once it paid again", share)
	}
}

func TestControllerSwitchesOffWhereTheContextMakesVerifyDear(t *testing.T) {
	options := Options(Eagle3, Chain(5))
	rng := rand.New(rand.NewPCG(2, 2))
	verify := func(context, rows int) float64 {
		if context < 4096 {
			return 10 + 0.1*float64(rows)
		}
		return 10 * float64(rows)
	}
	var cost Cost
	c := NewController(options, new(Acceptance))
	on := func(context int) (share float64) {
		const rounds = 300
		for range rounds {
			o := c.Choose(&cost, Load{Context: context})
			if !o.Shape.IsZero() {
				share += 1.0 / rounds
			}
			cost.Observe(context, o.Nodes(), o.DraftSteps(), verify(context, o.Nodes()), 0.2*float64(o.DraftSteps()))
			accepted := 0
			for accepted < o.Shape.Steps && rng.Float64() < 0.7 {
				accepted++
			}
			c.Observe(o, o.Nodes()-1, accepted)
		}
		return share
	}
	if first, long, again := on(100), on(10000), on(200); first < 0.9 || long > 0.1 || again < 0.9 {
		t.Errorf("drafted in %.2f of the rounds, then %.2f at a long context, then %.2f", first, long, again)
	}
}

func TestControllerCountsTheRestOfTheBatch(t *testing.T) {
	// Up to eight rows are free, each further one costs as much as a whole round.
	verify := func(rows int) float64 { return 10 + 10*float64(max(rows-8, 0)) }
	var cost Cost
	for rows := 1; rows <= 24; rows++ {
		for range 3 {
			cost.Observe(0, rows, 0, verify(rows), 0)
		}
	}
	c := NewController(Options(Eagle3, Chain(5)), new(Acceptance))
	if o := c.Choose(&cost, Load{}); o.Shape.IsZero() {
		t.Error("alone: did not draft into free rows")
	}
	if o := c.Choose(&cost, Load{Rows: 8, Tokens: 8}); !o.Shape.IsZero() {
		t.Errorf("beside eight others: drafted %v", o.Shape)
	}
}

func TestLookupThatFindsNothingCostsNothing(t *testing.T) {
	// Rows are dear, but a lookup finds something in one round of ten only, and then it is right.
	var cost Cost
	for rows := 1; rows <= 6; rows++ {
		for range 3 {
			cost.Observe(0, rows, 0, 10+float64(rows), 0)
		}
	}
	c := NewController(Options(PromptLookup, Chain(5)), new(Acceptance))
	rng := rand.New(rand.NewPCG(9, 9))
	looked := 0
	for range 400 {
		o := c.Choose(&cost, Load{})
		if o.Shape.IsZero() {
			continue
		}
		looked++
		drafted := 0
		if rng.IntN(10) == 0 {
			drafted = o.Shape.Steps
		}
		c.Observe(o, drafted, drafted)
	}
	if looked < 350 {
		t.Errorf("looked up in %d of 400 rounds", looked)
	}
}

func TestCurveForgetsOutliersAndStaleValues(t *testing.T) {
	var c curve
	for range 10 {
		c.observe(1, 10)
		c.observe(16, 20)
	}
	if y := c.at(6); y < 13.3 || y > 13.4 {
		t.Errorf("between 10 at 1 and 20 at 16, 6 is %v", y)
	}
	c.observe(16, 1000)
	if y := c.at(16); y > 23 {
		t.Errorf("one outlier moved 20 to %v", y)
	}
	for range 200 {
		c.observe(1, 10)
	}
	for range 3 {
		c.observe(16, 12)
	}
	if y := c.at(16); y > 17.5 {
		t.Errorf("after a long time, three new measurements of 12 left %v", y)
	}
}
