package collectives

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/octet-run/octet/collectives/transport"
)

func TestPolicyPicksBySizeShapeAndVerdict(t *testing.T) {
	broken := &Verdict{Ranks: 8, Pairs: []Pair{{From: 1, To: 2}, {From: 0, To: 5, Refused: wrongText}}}
	islands := Shape{Ranks: 8, Islands: []int{4, 4}}
	cases := []struct {
		name   string
		policy Policy
		bytes  int
		want   string // algorithm, or a part of the error
	}{
		{"shared CPUs", Policy{Shape: Shape{Ranks: 8, Coherent: true}}, 1 << 17, "central"},
		{"shared CPUs, large", Policy{Shape: Shape{Ranks: 8, Coherent: true}}, 1 << 18, "shared two-shot"},
		{"shared CPUs, huge pages", Policy{Shape: Shape{Ranks: 8, Coherent: true}, HugePages: true}, 1 << 20, "central"},
		{"shared CPUs, huge pages, large", Policy{Shape: Shape{Ranks: 8, Coherent: true}, HugePages: true}, 1 << 22, "shared two-shot"},
		{"dedicated CPUs, small", Policy{Shape: Shape{Ranks: 2, Coherent: true}, Dedicated: true}, 1 << 10, "one-shot"},
		{"dedicated CPUs, large", Policy{Shape: Shape{Ranks: 2, Coherent: true}, Dedicated: true}, 1 << 20, "shared two-shot"},
		{"fabric, small", Policy{Shape: islands}, 8 << 10, "packets"},
		{"fabric of two, medium", Policy{Shape: Shape{Ranks: 2}}, 64 << 10, "packets"},
		{"fabric, medium", Policy{Shape: islands}, 14 << 10, "hierarchical"},
		{"fabric, large", Policy{Shape: islands}, 1 << 20, "hierarchical"},
		{"flat fabric, large", Policy{Shape: Shape{Ranks: 8}}, 1 << 20, "two-shot"},
		{"uneven islands", Policy{Shape: Shape{Ranks: 8, Islands: []int{5, 3}}}, 1 << 20, "two-shot"},
		{"a refused path that hierarchical does not use", Policy{Shape: islands, Verdict: broken}, 8 << 10, "hierarchical"},
		{"a refused path that all use", Policy{Shape: Shape{Ranks: 8}, Verdict: broken}, 8 << 10, "which was refused"},
		{"no fallback allowed", Policy{Shape: islands, Verdict: broken, RequireFast: true}, 8 << 10, "no fallback is allowed"},
		{"tuned", Policy{Shape: islands, Tuned: []Choice{{MaxBytes: 1 << 12, Algorithm: "two-shot"}}}, 1 << 12, "two-shot"},
		{"tuned, beyond", Policy{Shape: islands, Tuned: []Choice{{MaxBytes: 1 << 12, Algorithm: "two-shot"}}}, 1 << 13, "packets"},
		{"inexact is not chosen", Policy{Shape: islands, Tuned: []Choice{{Algorithm: "ring"}}}, 1 << 20, "hierarchical"},
		{"inexact if the user says so", Policy{Shape: islands, Tuned: []Choice{{Algorithm: "ring"}}, AllowInexact: true}, 1 << 20, "ring"},
	}
	for _, c := range cases {
		got, err := c.policy.Pick(Payload{Rows: 1, Width: c.bytes / 4})
		if err != nil {
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: error %q, want %q", c.name, err, c.want)
			}
			continue
		}
		if got.Algorithm != c.want {
			t.Errorf("%s: picked %q (%s), want %q", c.name, got.Algorithm, got.Why, c.want)
		}
	}
}

func TestPlansSurviveJSONAndHashWhatTheyDecide(t *testing.T) {
	plan, err := Policy{Shape: Shape{Ranks: 8, Islands: []int{4, 4}}}.Plan([]int{1 << 10, 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	if err := plan.Write(&buf); err != nil {
		t.Fatal(err)
	}
	again, err := ReadPlan(&buf)
	if err != nil {
		t.Fatal(err)
	}
	if again.Hash() != plan.Hash() {
		t.Error("a plan read back has another hash")
	}
	if text := plan.Explain(); !strings.Contains(text, "hierarchical") || !strings.Contains(text, "any size") {
		t.Errorf("the plan is explained as\n%s", text)
	}
	again.Choices[0].Why, again.Choices[0].Median = "other", 5
	if again.Hash() != plan.Hash() {
		t.Error("the reason of a choice changes the hash")
	}
	again.Choices[0].Algorithm = "two-shot"
	if again.Hash() == plan.Hash() {
		t.Error("another choice has the same hash")
	}
}

func FuzzReadPlan(f *testing.F) {
	f.Add([]byte(`{"version":1,"shape":{"Ranks":2,"Islands":null,"Coherent":true},"choices":[{"max_bytes":0,"fused":false,"algorithm":"central"}]}`))
	f.Add([]byte(`{"version":1,"shape":{"Ranks":8,"Islands":[4,4]},"choices":[{"algorithm":"hierarchical"}]}`))
	f.Add([]byte(`{"version":2}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ReadPlan(bytes.NewReader(data))
		if err != nil {
			return
		}
		if _, err := p.Choose(Payload{Rows: 1, Width: 64}); err != nil {
			var none *NoAlgorithmError
			if !errors.As(err, &none) {
				t.Errorf("a plan that was accepted fails with %v", err)
			}
		}
	})
}

func TestRanksWithDifferentPlansAreNamedAtTheFirstOperation(t *testing.T) {
	shape := Shape{Ranks: 3, Coherent: true}
	g := newGroup(t, transport.Config{Ranks: 3, MaxRows: 1, MaxWidth: 64})
	errs := runOn(t, g, func(rank int) error {
		m, err := g.Attach(rank, transport.Polling{Timeout: limit})
		if err != nil {
			return err
		}
		plan := planOf("central", shape)
		if rank == 1 {
			plan.Choices[0].MaxBytes = 64
		}
		c, err := New(m, Config{Plan: plan})
		if err != nil {
			return err
		}
		return c.Barrier()
	})
	expectBlame(t, errs, 1, 3)
}

func TestAPlanForAnotherGroupIsRefused(t *testing.T) {
	g := newGroup(t, transport.Config{Ranks: 2, MaxRows: 1, MaxWidth: 64})
	m, err := g.Attach(0, transport.Polling{Timeout: limit})
	if err != nil {
		t.Fatal(err)
	}
	other := planOf("central", Shape{Ranks: 8, Coherent: true})
	inexact := planOf("ring", Shape{Ranks: 2, Coherent: true})
	inexact.AllowInexact = false
	old := planOf("central", Shape{Ranks: 2, Coherent: true})
	old.Version = PlanVersion + 1
	for _, plan := range []Plan{other, inexact, old} {
		if _, err := New(m, Config{Plan: plan}); err == nil {
			t.Errorf("plan %+v was accepted", plan)
		}
	}
}

func TestAPlanHoldsAsLongAsItsPathsDo(t *testing.T) {
	s := Shape{Ranks: 8}
	plan, err := Policy{Shape: s}.Plan(nil)
	if err != nil {
		t.Fatal(err)
	}
	fine := &Verdict{Ranks: 8, Pairs: []Pair{{From: 1, To: 2}, {From: 0, To: 5}}}
	if err := (Policy{Shape: s, Verdict: fine}).Holds(plan); err != nil {
		t.Errorf("with every path: %v", err)
	}
	broken := &Verdict{Ranks: 8, Pairs: []Pair{{From: 1, To: 2}, {From: 0, To: 5, Refused: wrongText}}}
	if err := (Policy{Shape: s, Verdict: broken}).Holds(plan); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("with a refused path: %v", err)
	}
}
