package speculation

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// Within these no combination of penalties and biases turns a logit into NaN.
const (
	maxPenalty = 1e3
	maxBias    = 1e6
)

// Params is how the tokens of one sequence are chosen. The zero value is greedy.
// At every node, in this order: penalties, logit bias, temperature, top-k, top-p,
// min-p.
type Params struct {
	Temperature float32 // 0: the largest logit, the lower token on ties
	TopK        int32   // 0 or less: off
	TopP        float32 // 0 or 1: off
	MinP        float32 // relative to the likeliest token; 0: off
	Seed        uint64

	RepetitionPenalty float32 // over prompt and output; 0 or 1: off
	PresencePenalty   float32 // over the output
	FrequencyPenalty  float32 // over the output
	LogitBias         map[int32]float32

	Logprobs     int32 // -1: none; otherwise how many alternatives a token
	PromptTokens int32 // how many of the first tokens are the prompt
}

// ParamError is a parameter that cannot be used.
type ParamError struct {
	Param  string // as requests spell it
	Reason string
}

func (e *ParamError) Error() string { return e.Param + " " + e.Reason }

// Validate checks every parameter against its range and the vocabulary.
func (p *Params) Validate(vocab int) error {
	for _, check := range []struct {
		param    string
		value    float32
		min, max float32
	}{
		{"temperature", p.Temperature, 0, math.MaxFloat32},
		{"top_p", p.TopP, 0, 1},
		{"min_p", p.MinP, 0, 1},
		{"repetition_penalty", p.RepetitionPenalty, 0, maxPenalty},
		{"presence_penalty", p.PresencePenalty, -maxPenalty, maxPenalty},
		{"frequency_penalty", p.FrequencyPenalty, -maxPenalty, maxPenalty},
	} {
		if !(check.value >= check.min && check.value <= check.max) {
			if check.max == math.MaxFloat32 {
				return &ParamError{check.param, fmt.Sprintf("must be a finite number of at least %g, got %v", check.min, check.value)}
			}
			return &ParamError{check.param, fmt.Sprintf("must be from %g to %g, got %v", check.min, check.max, check.value)}
		}
	}
	if p.Logprobs < -1 || int(p.Logprobs) > vocab {
		return &ParamError{"logprobs", fmt.Sprintf("must be from -1 to the vocabulary of %d, got %d", vocab, p.Logprobs)}
	}
	for token, bias := range p.LogitBias {
		if token < 0 || int(token) >= vocab {
			return &ParamError{"logit_bias", fmt.Sprintf("names token %d, the vocabulary has %d", token, vocab)}
		}
		if !(bias >= -maxBias && bias <= maxBias) {
			return &ParamError{"logit_bias", fmt.Sprintf("of token %d must be from %g to %g, got %v", token, -maxBias, maxBias, bias)}
		}
	}
	return nil
}

// penalises says that the tokens before a node change its logits.
func (p *Params) penalises() bool {
	return p.repeats() || p.PresencePenalty != 0 || p.FrequencyPenalty != 0
}

func (p *Params) repeats() bool { return p.RepetitionPenalty != 0 && p.RepetitionPenalty != 1 }

// biases returns the logit biases in token order.
func (p *Params) biases() []tokenBias {
	list := make([]tokenBias, 0, len(p.LogitBias))
	for _, token := range slices.Sorted(maps.Keys(p.LogitBias)) {
		list = append(list, tokenBias{token, p.LogitBias[token]})
	}
	return list
}

type tokenBias struct {
	token int32
	bias  float32
}
