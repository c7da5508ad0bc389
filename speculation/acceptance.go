package speculation

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

// nodes is the rows of the verify pass.
func (o Option) nodes() int { return max(o.Shape.Nodes, 1) }

// draftSteps is the steps of the draft that cost time.
func (o Option) draftSteps() int {
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
	rates map[Option][]rate
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
	rates := make(map[Option][]rate, len(a.rates))
	for family, list := range a.rates {
		// What others measured is a prior for this request, not its own trials.
		copied := make([]rate, len(list))
		for i, r := range list {
			share := min(1, maxInherited/max(r.trials, 1e-9))
			copied[i] = rate{r.successes * share, r.trials * share, r.prior}
		}
		rates[family] = copied
	}
	return Acceptance{rates: rates}
}

// maxInherited is how many trials of other requests count in a new one.
const maxInherited = 6.0

// Observe takes the number of drafted tokens that a round accepted.
func (a *Acceptance) Observe(o Option, accepted int) {
	if o.Shape.IsZero() {
		return
	}
	if a.rates == nil {
		a.rates = make(map[Option][]rate)
	}
	family := o.family()
	list := a.rates[family]
	for len(list) < o.Shape.Steps {
		list = append(list, rate{prior: priorTrials})
	}
	for depth := 0; depth < o.Shape.Steps && depth <= accepted; depth++ {
		r := &list[depth]
		r.successes *= forget
		r.prior *= forget
		r.trials = r.trials*forget + 1
		if depth < accepted {
			r.successes++
		}
	}
	a.rates[family] = list
}

// Rate is the estimated rate at a depth, the first drafted token's being 0.
func (a *Acceptance) Rate(o Option, depth int) float64 {
	prior := priorRate
	if depth > 0 {
		prior = a.Rate(o, depth-1) // a chain tends to hold its rate
	} else if o.Shape.TopK > 1 {
		miss := 1 - a.Rate(Option{By: o.By}, 0)
		prior = 1
		for range treeTries {
			prior *= miss
		}
		prior = 1 - prior
	}
	r := rate{prior: priorTrials}
	if list := a.rates[o.family()]; depth < len(list) {
		r = list[depth]
	}
	return (r.successes + prior*r.prior) / (r.trials + r.prior)
}

// Tokens is the expected number of tokens of a round.
func (a *Acceptance) Tokens(o Option) float64 {
	tokens, reach := 1.0, 1.0
	for depth := range o.Shape.Steps {
		reach *= a.Rate(o, depth)
		tokens += reach
	}
	return tokens
}
