package boxsim

import (
	"math"
	"strings"
	"testing"
)

func TestDistinctExperts(t *testing.T) {
	m := Model{Experts: 384, TopK: 8}
	for tokens, want := range map[int]float64{1: 8, 4: 31, 8: 60, 16: 110, 32: 188, 64: 284} {
		if got := m.Distinct(tokens); math.Abs(got-want) > 0.7 {
			t.Errorf("%d tokens need %.1f of 384 experts, want %.0f", tokens, got, want)
		}
	}
	if got := (&Model{}).Distinct(5); got != 0 {
		t.Errorf("a dense model needs %g experts", got)
	}
}

func TestEmittedTokensByHand(t *testing.T) {
	d := Draft{Acceptance: []float64{0.8, 0.5}, Sibling: 0.5}
	for _, tc := range []struct {
		tree Tree
		want float64
	}{
		{Tree{TopK: 1, Tokens: 1}, 1},
		{Tree{TopK: 1, Steps: 1, Tokens: 2}, 1.8},
		{Tree{TopK: 1, Steps: 3, Tokens: 4}, 1 + 0.8 + 0.4 + 0.2},
		{Tree{TopK: 2, Steps: 1, Tokens: 3}, 1 + 0.8 + 0.2*0.5},
		{Tree{TopK: 2, Steps: 2, Tokens: 4}, 1 + 0.8 + 0.4 + 0.2}, // sibling at depth 2 before the one at depth 1
		{Tree{TopK: 2, Steps: 2, Tokens: 5}, 1 + 0.8 + 0.4 + 0.2 + 0.1},
	} {
		if got := d.Emitted(tc.tree); math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("%+v emits %g, want %g", tc.tree, got, tc.want)
		}
	}
}

func TestTheBestRowIsTheFastestAndNoDraftIsAnAnswer(t *testing.T) {
	d := question(t, "rtx-pro-6000x8", 8)
	rows, best, err := d.Rows()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.TokensPerS > best.TokensPerS {
			t.Errorf("%+v is faster than the best, %+v", r, best)
		}
		if r.VerifyMS < r.ComputeMS+r.LaunchMS {
			t.Errorf("a pass is shorter than its parts: %+v", r)
		}
	}
	d.Draft = Draft{Acceptance: []float64{0.01}, StepUS: 1000}
	if _, best, err = d.Rows(); err != nil || best.Tokens != 1 {
		t.Errorf("a drafter that is never right: best %+v (%v)", best, err)
	}
}

func TestHypothesesClaimNothingAndDiffer(t *testing.T) {
	d := question(t, "rtx-pro-6000x8", 8)
	all, err := Hypotheses(d, Seed(), load(t, "rtx-pro-6000x8"), load(t, "rtx-pro-6000x8-broadcom"))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 4 {
		t.Fatalf("%d hypotheses, want 4", len(all))
	}
	for _, h := range all {
		if h.T1US <= 0 || h.T16US < h.T1US || h.Plain <= 0 || h.Measurement == "" || h.Octet.TokensPerS <= h.Plain || h.BestMisfit > h.Misfit {
			t.Errorf("%+v", h)
		}
	}
}

func TestBadQuestionsOfDecodingAreRefused(t *testing.T) {
	for want, change := range map[string]func(*Decode){
		"0 tokens":   func(d *Decode) { d.Tokens = []int{0} },
		"acceptance": func(d *Decode) { d.Draft.Acceptance = []float64{1.5} },
		"negative":   func(d *Decode) { d.Context = -1 },
		"8 GPUs":     func(d *Decode) { d.Ranks = 12 },
	} {
		d := question(t, "rtx-pro-6000x8", 8)
		change(&d)
		if _, _, err := d.Rows(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}
