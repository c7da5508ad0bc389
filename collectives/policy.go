package collectives

import (
	"errors"
	"fmt"
	"strings"
)

// Policy decides which algorithm reduces which payload. It is a pure function of
// its fields: ranks that are given equal ones make equal plans.
type Policy struct {
	Shape   Shape
	Verdict *Verdict // nil: not probed
	// Tuned is what Tune measured, by rising MaxBytes; it goes before preference.
	Tuned []Choice
	// Dedicated says that every rank has a CPU to itself.
	Dedicated bool
	// HugePages says that the slabs lie on huge pages. Without them ranks that share
	// processors spend more time on translations than on a large sum, the more the
	// more of it each touches.
	HugePages bool
	// AllowInexact admits algorithms that do not keep the arithmetic contract.
	AllowInexact bool
	// RequireFast makes it an error that the first choice cannot be had.
	RequireFast bool
}

// DefaultPlan is the plan for a group that was neither probed nor tuned.
func DefaultPlan(s Shape, dedicated bool) (Plan, error) {
	return Policy{Shape: s, Dedicated: dedicated}.Plan(nil)
}

// Plan is the plan for payloads of the given sizes in bytes, rising, plain and
// fused. The last choice holds for everything larger. No sizes means those at
// which preference changes.
func (p Policy) Plan(sizes []int) (Plan, error) {
	plan := Plan{Version: PlanVersion, Shape: p.Shape, AllowInexact: p.AllowInexact}
	if len(sizes) == 0 {
		sizes = []int{p.smallBytes(), p.smallBytes() + 4}
	}
	for i, bytes := range sizes {
		for _, fused := range []bool{false, true} {
			c, err := p.Pick(Payload{Rows: 1, Width: max(bytes/4, 1), Fused: fused})
			if err != nil {
				return Plan{}, err
			}
			c.MaxBytes, c.Fused = bytes, fused
			if i == len(sizes)-1 {
				c.MaxBytes = 0
			}
			plan.Choices = append(plan.Choices, c)
		}
	}
	return plan, nil
}

// Pick is the algorithm for one payload, and why.
func (p Policy) Pick(payload Payload) (Choice, error) {
	wanted := p.wanted(payload)
	var passed []string
	for _, c := range wanted {
		a, err := Find(c.Algorithm)
		if err == nil {
			err = p.admits(a, payload)
		}
		if err == nil {
			if len(passed) > 0 {
				c.Why += "; passed over: " + strings.Join(passed, ", ")
			}
			return c, nil
		}
		if p.RequireFast {
			return Choice{}, fmt.Errorf("%q is the first choice for %d bytes and cannot be had, and no fallback is allowed: %w",
				c.Algorithm, payload.Bytes(), err)
		}
		passed = append(passed, fmt.Sprintf("%s (%v)", c.Algorithm, err))
	}
	return Choice{}, &NoAlgorithmError{Shape: p.Shape, Payload: payload, Reasons: p.refusals(payload)}
}

// Holds is nil where all of a plan, which may be older than the verdict, can be had.
func (p Policy) Holds(plan Plan) error {
	for _, c := range plan.Choices {
		a, err := Find(c.Algorithm)
		if err == nil {
			err = p.admits(a, Payload{Rows: 1, Width: max(c.MaxBytes/4, 1), Fused: c.Fused})
		}
		if err != nil {
			return fmt.Errorf("%q: %w", c.Algorithm, err)
		}
	}
	return nil
}

// admits is nil where an algorithm may reduce a payload.
func (p Policy) admits(a Algorithm, payload Payload) error {
	if !a.Exact && !p.AllowInexact {
		return errors.New("is not exact, and only exact ones are allowed")
	}
	if err := a.Admits(p.Shape, payload); err != nil {
		return err
	}
	return p.Verdict.allows(a, p.Shape)
}

func (p Policy) refusals(payload Payload) error {
	var reasons []error
	for _, a := range Algorithms() {
		if err := p.admits(a, payload); err != nil {
			reasons = append(reasons, fmt.Errorf("%s: %w", a.Name, err))
		}
	}
	return errors.Join(reasons...)
}

// smallBytes is up to where one hand-over beats splitting the sum.
func (p Policy) smallBytes() int {
	switch {
	case p.Shape.Coherent && !p.Dedicated && p.HugePages:
		return 1 << 20
	case p.Shape.Coherent && !p.Dedicated:
		return 128 << 10
	case p.Shape.Coherent:
		return 128 << 10 / max(p.Shape.Ranks, 1)
	}
	// Packets send 2(N-1) bytes for each of the payload.
	return 160 << 10 / max(2*(p.Shape.Ranks-1), 2)
}

// wanted is the candidates in order of preference.
func (p Policy) wanted(payload Payload) []Choice {
	var out []Choice
	want := func(algorithm, why string) { out = append(out, Choice{Algorithm: algorithm, Why: why}) }
	for _, c := range p.Tuned {
		if c.Fused == payload.Fused && (c.MaxBytes == 0 || payload.Bytes() <= c.MaxBytes) {
			out = append(out, c)
			break
		}
	}
	small := payload.Bytes() <= p.smallBytes()
	switch {
	case p.Shape.Coherent && !p.Dedicated && (small || payload.Fused):
		want("central", "ranks share CPUs: one sleep and one wake per operation")
	case p.Shape.Coherent && small:
		want("one-shot", "dedicated CPUs: one hand-over")
	}
	if p.Shape.Coherent {
		want("shared two-shot", "one memory: the sum is split and not copied")
	}
	if small {
		want("packets", "one crossing of the link")
	}
	if len(p.Shape.Islands) > 1 {
		want("hierarchical", "each sum crosses between islands once")
	}
	want("two-shot", "least traffic on a flat fabric")
	return out
}
