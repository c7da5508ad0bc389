package collectives

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"time"
)

// PlanVersion is the version of the plan's JSON.
const PlanVersion = 1

// Plan says which algorithm reduces which payload in one group. It is made by
// Policy, with or without what Tune measured, once, and is the same on all ranks.
type Plan struct {
	Version int      `json:"version"`
	Box     string   `json:"box,omitempty"` // the machine it was tuned on
	Shape   Shape    `json:"shape"`
	Choices []Choice `json:"choices"` // by rising MaxBytes
	// AllowInexact admits algorithms that do not keep the arithmetic contract.
	AllowInexact bool `json:"allow_inexact,omitempty"`
}

// Choice is the algorithm for payloads of up to MaxBytes (0: of any size).
type Choice struct {
	MaxBytes  int    `json:"max_bytes"`
	Fused     bool   `json:"fused"`
	Algorithm string `json:"algorithm"`
	// Why is what the choice rests on: a measurement, or the policy's reason.
	Why    string        `json:"why,omitempty"`
	Median time.Duration `json:"median_ns,omitempty"`
}

func (p Plan) isZero() bool { return p.Version == 0 && len(p.Choices) == 0 }

func (p Plan) validate(ranks int) error {
	if p.Version != PlanVersion {
		return fmt.Errorf("all-reduce plan has version %d, this program reads %d: tune again", p.Version, PlanVersion)
	}
	if p.Shape.Ranks != ranks {
		return fmt.Errorf("all-reduce plan is for %d ranks, the group has %d: tune again", p.Shape.Ranks, ranks)
	}
	if err := p.Shape.validate(); err != nil {
		return fmt.Errorf("all-reduce plan: %w", err)
	}
	for _, c := range p.Choices {
		a, err := Find(c.Algorithm)
		if err != nil {
			return fmt.Errorf("all-reduce plan: %w", err)
		}
		if !a.Exact && !p.AllowInexact {
			return fmt.Errorf("all-reduce plan: %q is not exact and the plan does not allow that", c.Algorithm)
		}
	}
	return nil
}

// Choose is the algorithm for a payload: the planned one where it admits the
// payload, else the first that does.
func (p Plan) Choose(payload Payload) (Algorithm, error) {
	for _, c := range p.Choices {
		if c.Fused != payload.Fused || c.MaxBytes != 0 && payload.Bytes() > c.MaxBytes {
			continue
		}
		a, err := Find(c.Algorithm)
		if err != nil {
			return Algorithm{}, err
		}
		if a.Admits(p.Shape, payload) == nil {
			return a, nil
		}
	}
	return Algorithm{}, &NoAlgorithmError{Shape: p.Shape, Payload: payload, Reasons: Policy{Shape: p.Shape, AllowInexact: p.AllowInexact}.refusals(payload)}
}

// puts reports whether any of the plan's algorithms writes to inboxes.
func (p Plan) puts() bool {
	return slices.ContainsFunc(p.Choices, func(c Choice) bool {
		a, err := Find(c.Algorithm)
		return err == nil && slices.ContainsFunc(a.Program(p.Shape, 0, Payload{Rows: 1, Width: shardAlign * p.Shape.Ranks}),
			func(s Step) bool { return s.Do == Put })
	})
}

// NoAlgorithmError says that the plan has no algorithm for a payload.
type NoAlgorithmError struct {
	Shape   Shape
	Payload Payload
	Reasons error
}

// Error gives every algorithm's reason.
func (e *NoAlgorithmError) Error() string {
	return fmt.Sprintf("the plan has no all-reduce for [%d, %d] (fused: %v) among %d ranks in islands %v: tune again (%v)",
		e.Payload.Rows, e.Payload.Width, e.Payload.Fused, e.Shape.Ranks, e.Shape.Islands, e.Reasons)
}

// Hash is equal for plans that make equal choices, whatever they rest on.
func (p Plan) Hash() uint64 {
	bare := p
	bare.Box = ""
	bare.Choices = slices.Clone(p.Choices)
	for i := range bare.Choices {
		bare.Choices[i].Why, bare.Choices[i].Median = "", 0
	}
	data, err := json.Marshal(bare)
	if err != nil {
		panic(fmt.Sprintf("collectives: a plan is plain data: %v", err))
	}
	h := fnv.New64a()
	_, _ = h.Write(data)
	return h.Sum64()
}

// ReadPlan reads a plan's JSON.
func ReadPlan(r io.Reader) (Plan, error) {
	var p Plan
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return Plan{}, fmt.Errorf("read all-reduce plan: %w", err)
	}
	return p, p.validate(p.Shape.Ranks)
}

// Write writes the plan's JSON.
func (p Plan) Write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(p)
}

// Explain is the plan as a table: for each range of sizes the algorithm and why.
func (p Plan) Explain() string {
	head := fmt.Sprintf("%d ranks, islands %v, plan %016x\n", p.Shape.Ranks, p.Shape.Islands, p.Hash())
	return head + table("up to\tform\talgorithm\tmedian\twhy", func(w io.Writer) {
		for _, c := range p.Choices {
			size, form, median := "any size", "plain", "-"
			if c.MaxBytes > 0 {
				size = fmt.Sprintf("%d B", c.MaxBytes)
			}
			if c.Fused {
				form = "fused"
			}
			if c.Median > 0 {
				median = c.Median.String()
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", size, form, c.Algorithm, median, c.Why)
		}
	})
}
