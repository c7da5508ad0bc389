package speculation

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

var toyParams = map[string]Params{
	"greedy":      {Logprobs: 2},
	"greedy bias": {Logprobs: -1, RepetitionPenalty: 1.3, FrequencyPenalty: 0.4, LogitBias: map[int32]float32{2: 1.5}},
	"plain":       {Temperature: 1, Seed: 3, Logprobs: -1},
	"all": {
		Temperature: 0.8, TopK: 4, TopP: 0.9, MinP: 0.05, Seed: 11, RepetitionPenalty: 1.2,
		PresencePenalty: 0.3, FrequencyPenalty: 0.2, LogitBias: map[int32]float32{1: -0.7, 4: 0.5}, Logprobs: 3,
	},
	"penalties": {Temperature: 1.1, Seed: 1 << 60, PresencePenalty: -0.5, FrequencyPenalty: 0.6, Logprobs: 0},
}

func TestOutputIsTheSameForEveryDrafter(t *testing.T) {
	m := toyModel{vocab: 7, seed: 5}
	prompt := []int32{1, 2, 3, 2, 6}
	for name, p := range toyParams {
		want, err := generate(m, p, prompt, 60, nil)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(8, 9))
		drafters := map[string]func([]int32, int32) *Tree{
			"random trees": func(_ []int32, root int32) *Tree { return randomTree(rng, root, 1+rng.IntN(24), m.vocab) },
			"random chains": func(_ []int32, root int32) *Tree {
				drafts := make([]int32, rng.IntN(6))
				for i := range drafts {
					drafts[i] = int32(rng.IntN(m.vocab))
				}
				return NewChain(root, drafts)
			},
			"n-gram": func(context []int32, root int32) *Tree {
				g := NewNGram(1)
				g.Observe(context...)
				return NewChain(root, g.Draft(root, 5))
			},
			"an oracle": func(context []int32, root int32) *Tree {
				rest := ids(want)[len(context)-len(prompt)+1:]
				return NewChain(root, rest[:min(len(rest), 9)])
			},
		}
		for drafter, draft := range drafters {
			got, err := generate(m, p, prompt, 60, draft)
			if err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s with %s:\n got %v\nwant %v", name, drafter, got, want)
			}
		}
	}
}

func TestGreedyPathIsTheTargetsOwn(t *testing.T) {
	m := toyModel{vocab: 5, seed: 1}
	context, root := []int32{1}, int32(2)
	s, err := NewSampler(Params{Logprobs: -1}, m.vocab, new(Workspace))
	if err != nil {
		t.Fatal(err)
	}
	s.Observe(context...)
	a := largest(m.logits([]int32{1, 2}))
	b := largest(m.logits([]int32{1, 2, a}))
	c := largest(m.logits([]int32{1, 2, a, b}))
	tree := NewTree(root)
	tree.Add(0, (a+1)%5, 0)
	tree.Add(0, a, 0)
	tree.Add(1, b, 0)
	tree.Add(2, b, 0)
	verdict, err := s.Verify(tree, m.rows(context, tree))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(verdict.Path, []uint8{0, 2, 4}) || !slices.Equal(verdict.IDs(), []int32{a, b, c}) {
		t.Errorf("path %v tokens %v, want [0 2 4] and [%d %d %d]", verdict.Path, verdict.IDs(), a, b, c)
	}
}

func TestTiesGoToTheLowerToken(t *testing.T) {
	s, err := NewSampler(Params{Logprobs: 3}, 4, new(Workspace))
	if err != nil {
		t.Fatal(err)
	}
	token, err := s.First([]float32{1, 2, 2, 1})
	if err != nil {
		t.Fatal(err)
	}
	if token.ID != 1 || token.Top[0].Token != 1 || token.Top[1].Token != 2 || token.Top[2].Token != 0 {
		t.Errorf("chose %+v", token)
	}
}

func TestLogitsThatAreNotFiniteAreAnError(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		for _, p := range toyParams {
			s, err := NewSampler(p, 7, new(Workspace))
			if err != nil {
				t.Fatal(err)
			}
			tree := NewChain(1, []int32{2})
			row := make([]float32, 7)
			row[5] = float32(bad)
			_, err = s.Verify(tree, func(int) []float32 { return row })
			var logitsError *LogitsError
			if !errors.As(err, &logitsError) || logitsError.Token != 5 {
				t.Errorf("logit %v: %v", bad, err)
			}
			if s.tally.total != 0 {
				t.Errorf("a failed walk left %d tokens counted", s.tally.total)
			}
		}
	}
}

func TestLogprobsAreOfTheRawDistribution(t *testing.T) {
	logits := []float32{0.5, -1, 2, 0}
	total := 0.0
	for _, logit := range logits {
		total += math.Exp(float64(logit))
	}
	p := Params{Temperature: 0.1, LogitBias: map[int32]float32{3: 50}, Logprobs: 4}
	s, err := NewSampler(p, 4, new(Workspace))
	if err != nil {
		t.Fatal(err)
	}
	token, err := s.First(logits)
	if err != nil {
		t.Fatal(err)
	}
	if token.ID != 3 {
		t.Fatalf("chose %d", token.ID)
	}
	order := []int32{2, 0, 3, 1}
	for i, top := range append(token.Top, Candidate{token.ID, token.Logprob}) {
		if i < 4 && top.Token != order[i] {
			t.Errorf("alternative %d is %d", i, top.Token)
		}
		want := float64(logits[top.Token]) - math.Log(total)
		if math.Abs(float64(top.Logprob)-want) > 1e-6 {
			t.Errorf("log-probability of %d is %v, want %v", top.Token, top.Logprob, want)
		}
	}
}

func TestParamsAreRefusedByName(t *testing.T) {
	nan := float32(math.NaN())
	for param, p := range map[string]Params{
		"temperature":        {Temperature: -1},
		"top_p":              {TopP: 1.5},
		"min_p":              {MinP: nan},
		"repetition_penalty": {RepetitionPenalty: -0.1},
		"presence_penalty":   {PresencePenalty: nan},
		"frequency_penalty":  {FrequencyPenalty: float32(math.Inf(1))},
		"logprobs":           {Logprobs: -2},
		"logit_bias":         {LogitBias: map[int32]float32{9: 1}},
	} {
		var paramError *ParamError
		if err := p.Validate(3); !errors.As(err, &paramError) || paramError.Param != param {
			t.Errorf("%s: %v", param, err)
		}
	}
	good := Params{Temperature: 1, TopK: -1, TopP: 1, MinP: 1, LogitBias: map[int32]float32{2: -100}}
	if err := good.Validate(3); err != nil {
		t.Error(err)
	}
}

func TestPhiloxKnownAnswers(t *testing.T) {
	// From the kat_vectors of Random123.
	ones := uint32(math.MaxUint32)
	for _, c := range []struct {
		counter [4]uint32
		key     [2]uint32
		want    [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{ones, ones, ones, ones}, [2]uint32{ones, ones}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{
			[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
			[2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
		},
	} {
		if got := philox(c.counter, c.key); got != c.want {
			t.Errorf("philox(%x, %x) = %x, want %x", c.counter, c.key, got, c.want)
		}
	}
}

func TestSelectTopEqualsSorting(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for range 300 {
		logits := make([]float32, 1+rng.IntN(400))
		for i := range logits {
			logits[i] = float32(rng.IntN(1 + rng.IntN(200)))
		}
		var w Workspace
		w.reserve(len(logits))
		sorted := slices.Clone(w.every(len(logits)))
		sortTokens(logits, sorted)
		n := rng.IntN(len(logits) + 1)
		rng.Shuffle(len(logits), func(i, j int) { w.ids[i], w.ids[j] = w.ids[j], w.ids[i] })
		if got := selectTop(logits, w.ids[:len(logits)], n); !slices.Equal(got, sorted[:n]) {
			t.Fatalf("top %d of %v: %v, want %v", n, logits, got, sorted[:n])
		}
	}
}
