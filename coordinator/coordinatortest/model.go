package coordinatortest

import (
	"cmp"
	"math"
	"slices"

	"github.com/octet-run/octet/speculation"
)

// Model is a language model: the logits after a context.
type Model func(context []int32) []float32

// Random is a model with fixed random logits for every four last tokens, sharp
// enough that a drafter can guess it.
func Random(vocab int, seed uint64) Model {
	return func(context []int32) []float32 {
		state := seed
		for _, token := range context[max(0, len(context)-4):] {
			state = mix(state ^ uint64(uint32(token)))
		}
		row := make([]float32, vocab)
		for i := range row {
			state = mix(state)
			row[i] = float32(state>>40) / (1 << 24) * 4
		}
		row[int(mix(state)%uint64(vocab))] += 3
		return row
	}
}

// Script is a model that after a prompt of that many tokens says the script, and
// its last token ever after.
func Script(vocab, prompt int, script []int32) Model {
	return func(context []int32) []float32 {
		row := make([]float32, vocab)
		at := min(max(len(context)-prompt, 0), len(script)-1)
		row[script[at]] = 10
		return row
	}
}

// mix is a step of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// candidates is what a drafter that knows the model proposes after a context. In
// one context of three it is wrong about the first.
func candidates(m Model, context []int32, k int) []speculation.Candidate {
	logits := m(context)
	total := 0.0
	for _, logit := range logits {
		total += math.Exp(float64(logit))
	}
	all := make([]speculation.Candidate, len(logits))
	for i, logit := range logits {
		all[i] = speculation.Candidate{Token: int32(i), Logprob: float32(float64(logit) - math.Log(total))}
	}
	slices.SortStableFunc(all, func(a, b speculation.Candidate) int { return cmp.Compare(b.Logprob, a.Logprob) })
	state := uint64(len(context))
	for _, token := range context[max(0, len(context)-3):] {
		state = mix(state ^ uint64(uint32(token)))
	}
	if state%3 == 0 {
		all[0].Token, all[k].Token = all[k].Token, all[0].Token
	}
	return all[:k]
}
