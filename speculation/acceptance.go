package speculation

import "math"

// Drafter is who proposes tokens.
type Drafter uint8

// The drafters.
const (
	NoDrafter Drafter = iota
	Eagle3
	PromptLookup
)

// Option is one way to run a round for a sequence. The zero Option is without
// speculation.
type Option struct {
	By    Drafter
	Shape Shape
}

// Nodes is the rows of the verify pass at most, the root's included.
func (o Option) Nodes() int { return max(o.Shape.Nodes, 1) }

// DraftSteps is the steps of the draft that cost time.
func (o Option) DraftSteps() int {
	if o.By != Eagle3 {
		return 0
	}
	return o.Shape.Steps
}

// family is what shares acceptance rates: all chains of a drafter, or one tree.
func (o Option) family() Option {
	if o.Shape.TopK <= 1 {
		return Option{By: o.By}
	}
	return o
}

// Acceptance is the measured rate, per drafter and depth, at which a token is
// accepted given that its parent was. Old rounds count less and less.
type Acceptance struct {
	families map[Option]*family
}

// family is what was measured of the options that share rates.
type family struct {
	depths []rate
	// filled is the share of rounds that had a draft at all: prompt lookup may find nothing.
	filled rate
}

// rate counts successes among trials, both forgetting, and what the prior is
// still worth.
type rate struct{ successes, trials, prior float64 }

const (
	// forget is what a trial is still worth when the next one has come.
	forget = 0.95
	// A rate that was never tried is taken for that of a fair drafter, with the
	// weight of a few trials, which is forgotten like them.
	priorRate   = 0.7
	priorTrials = 2.0
	// A tree is taken for this many independent tries of the chain at each depth
	// until it has been measured itself.
	treeTries = 2
)

// Clone returns a copy to go on from: a new request starts at the group's rates.
func (a *Acceptance) Clone() Acceptance {
	families := make(map[Option]*family, len(a.families))
	for key, from := range a.families {
		f := &family{filled: from.filled.inherited(), depths: make([]rate, len(from.depths))}
		for i, r := range from.depths {
			f.depths[i] = r.inherited()
		}
		families[key] = f
	}
	return Acceptance{families: families}
}

// maxInherited is how many trials of other requests count in a new one: they are a
// prior for it, not its own.
const maxInherited = 6.0

func (r rate) inherited() rate {
	share := min(1, maxInherited/max(r.trials, 1))
	return rate{r.successes * share, r.trials * share, r.prior}
}

func (r *rate) observe(success bool) {
	r.successes *= forget
	r.prior *= forget
	r.trials = r.trials*forget + 1
	if success {
		r.successes++
	}
}

func (r *rate) estimate(prior float64) float64 {
	return (r.successes + prior*r.prior) / (r.trials + r.prior)
}

// Observe takes the numbers of tokens that a round drafted and accepted.
func (a *Acceptance) Observe(o Option, drafted, accepted int) {
	if o.Shape.IsZero() {
		return
	}
	if a.families == nil {
		a.families = make(map[Option]*family)
	}
	f, ok := a.families[o.family()]
	if !ok {
		f = &family{filled: rate{prior: priorTrials}}
		a.families[o.family()] = f
	}
	for len(f.depths) < o.Shape.Steps {
		f.depths = append(f.depths, rate{prior: priorTrials})
	}
	f.filled.observe(drafted > 0)
	if drafted == 0 {
		return
	}
	for depth := 0; depth < o.Shape.Steps && depth <= accepted; depth++ {
		f.depths[depth].observe(depth < accepted)
	}
}

// first is what the rate of the first drafted token is taken for until it has been
// measured.
func (a *Acceptance) first(o Option) float64 {
	if o.Shape.TopK <= 1 {
		return priorRate
	}
	chain := a.families[Option{By: o.By}].rate(0, priorRate)
	return 1 - math.Pow(1-chain, treeTries)
}

// rate estimates the rate at a depth, the first drafted token's being 0, from what
// it is taken for otherwise.
func (f *family) rate(depth int, prior float64) float64 {
	if f == nil || depth >= len(f.depths) {
		return prior
	}
	return f.depths[depth].estimate(prior)
}

// expect estimates what an option brings: the share of its rounds that have a draft
// at all, and the tokens of a round.
func (a *Acceptance) expect(o Option) (filled, tokens float64) {
	filled, tokens = 1, 1
	f := a.families[o.family()]
	if f != nil {
		filled = f.filled.estimate(1)
	}
	reach, rate := filled, a.first(o)
	for depth := range o.Shape.Steps {
		rate = f.rate(depth, rate) // a chain tends to hold its rate
		reach *= rate
		tokens += reach
	}
	return filled, tokens
}

// trials is how many rounds the estimate of a first token rests on.
func (a *Acceptance) trials(o Option) float64 {
	if o.Shape.IsZero() {
		return math.Inf(1) // no estimate
	}
	if f, ok := a.families[o.family()]; ok && len(f.depths) > 0 {
		return f.depths[0].trials
	}
	return 0
}

// Tokens is the expected number of tokens of a round.
func (a *Acceptance) Tokens(o Option) float64 {
	_, tokens := a.expect(o)
	return tokens
}
