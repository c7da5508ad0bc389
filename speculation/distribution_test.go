package speculation

import (
	"math"
	"math/rand/v2"
	"testing"
)

const (
	jointVocab   = 5
	jointSamples = 12000
)

var jointPrompt = []int32{0, 3}

// exactJoint enumerates the probability of every three tokens after the prompt.
func exactJoint(m toyModel, p Params) map[[3]int32]float64 {
	joint := map[[3]int32]float64{}
	next := func(output ...int32) []float64 {
		context := append(append([]int32{}, jointPrompt...), output...)
		return processedOracle(p, jointPrompt, output, m.logits(context))
	}
	for a, pa := range next() {
		for b, pb := range next(int32(a)) {
			for c, pc := range next(int32(a), int32(b)) {
				joint[[3]int32{int32(a), int32(b), int32(c)}] = pa * pb * pc
			}
		}
	}
	return joint
}

// chiSquare is how many standard deviations the statistic of the counts lies
// above its mean. Cells that expect fewer than five are taken together.
func chiSquare(joint map[[3]int32]float64, counts map[[3]int32]int) float64 {
	statistic, cells := 0.0, 0
	restExpected, restCount := 0.0, 0
	add := func(expected float64, count int) {
		statistic += (float64(count) - expected) * (float64(count) - expected) / expected
		cells++
	}
	for cell, p := range joint {
		expected := p * jointSamples
		if expected < 5 {
			restExpected += expected
			restCount += counts[cell]
			continue
		}
		add(expected, counts[cell])
	}
	if restExpected > 0 {
		add(restExpected, restCount)
	} else if restCount > 0 {
		return math.Inf(1)
	}
	freedom := float64(cells - 1)
	return (statistic - freedom) / math.Sqrt(2*freedom)
}

// countJoint samples three tokens with each seed.
func countJoint(t *testing.T, sample func(seed uint64) ([]Token, error)) map[[3]int32]int {
	t.Helper()
	counts := map[[3]int32]int{}
	for seed := range uint64(jointSamples) {
		tokens, err := sample(seed)
		if err != nil {
			t.Fatal(err)
		}
		counts[[3]int32(ids(tokens))]++
	}
	return counts
}

var jointParams = map[string]Params{
	"plain":     {Temperature: 1, Logprobs: -1},
	"filtered":  {Temperature: 0.9, TopK: 4, TopP: 0.85, MinP: 0.03, Logprobs: -1},
	"penalised": {Temperature: 1.2, RepetitionPenalty: 1.5, PresencePenalty: 0.4, FrequencyPenalty: 0.7, LogitBias: map[int32]float32{2: 0.8}, Logprobs: -1},
	"nucleus":   {Temperature: 1.5, TopP: 0.7, FrequencyPenalty: -0.5, Logprobs: -1},
}

func TestJointDistributionIsExact(t *testing.T) {
	m := toyModel{vocab: jointVocab, seed: 21}
	for name, p := range jointParams {
		joint := exactJoint(m, p)
		rng := rand.New(rand.NewPCG(4, 4))
		counts := countJoint(t, func(seed uint64) ([]Token, error) {
			p.Seed = seed
			return generate(m, p, jointPrompt, 3, func(_ []int32, root int32) *Tree { return randomTree(rng, root, 8, jointVocab) })
		})
		if z := chiSquare(joint, counts); z > 5 {
			t.Errorf("%s: chi-square lies %.1f standard deviations above its mean", name, z)
		}
	}
}

// The test above must be able to fail. Each mutant samples the three tokens with
// one planted mistake.
func TestJointDistributionCatchesMutants(t *testing.T) {
	m := toyModel{vocab: jointVocab, seed: 21}
	chain := func(t *testing.T, p Params, observe bool, row func(step int) int) map[[3]int32]int {
		return countJoint(t, func(seed uint64) ([]Token, error) {
			p.Seed, p.PromptTokens = seed, int32(len(jointPrompt))
			s, err := NewSampler(p, m.vocab, new(Workspace))
			if err != nil {
				return nil, err
			}
			s.Observe(jointPrompt...)
			context := append([]int32{}, jointPrompt...)
			var tokens []Token
			for step := range 3 {
				token, err := s.First(m.logits(context[:len(jointPrompt)+row(step)]))
				if err != nil {
					return nil, err
				}
				tokens = append(tokens, token)
				context = append(context, token.ID)
				if observe {
					s.Observe(token.ID)
				}
			}
			return tokens, nil
		})
	}
	own := func(step int) int { return step }
	before := func(step int) int { return max(step-1, 0) }
	greedy := jointParams["plain"]
	greedy.Temperature = 1e-3

	for _, c := range []struct {
		name   string
		params Params
		counts func(Params) map[[3]int32]int
		caught bool
	}{
		{"no mistake", jointParams["plain"], func(p Params) map[[3]int32]int { return chain(t, p, true, own) }, false},
		{"reused coin", jointParams["plain"], func(p Params) map[[3]int32]int { return chain(t, p, false, own) }, true},
		{"row of the node before", jointParams["plain"], func(p Params) map[[3]int32]int { return chain(t, p, true, before) }, true},
		{"temperature ignored", jointParams["plain"], func(Params) map[[3]int32]int { return chain(t, greedy, true, own) }, true},
		{"penalties ignored", jointParams["penalised"], func(p Params) map[[3]int32]int {
			p.RepetitionPenalty, p.PresencePenalty, p.FrequencyPenalty = 0, 0, 0
			return chain(t, p, true, own)
		}, true},
		{"top-p ignored", jointParams["nucleus"], func(p Params) map[[3]int32]int {
			p.TopP = 0
			return chain(t, p, true, own)
		}, true},
	} {
		z := chiSquare(exactJoint(m, c.params), c.counts(c.params))
		if caught := z > 5; caught != c.caught {
			t.Errorf("%s: chi-square lies %.1f standard deviations above its mean, caught %v", c.name, z, caught)
		}
	}
}

func TestNucleusOfAWideVocabularyEqualsTheOracle(t *testing.T) {
	const vocab = 3000
	m := toyModel{vocab: vocab, seed: 3}
	rng := rand.New(rand.NewPCG(6, 6))
	var w Workspace
	w.reserve(vocab)
	for range 40 {
		p := Params{Temperature: 0.2 + 2*rng.Float32(), TopP: rng.Float32(), MinP: 0.1 * rng.Float32() * float32(rng.IntN(2)), TopK: int32(rng.IntN(2) * rng.IntN(vocab))}
		logits := m.logits([]int32{int32(rng.IntN(1000))})
		want := processedOracle(p, nil, nil, logits)
		for range 20 {
			if token := draw(&p, &w, logits, rng.Float64()); want[token] == 0 {
				t.Fatalf("%+v chose token %d, which the oracle left out", p, token)
			}
		}
	}
}
