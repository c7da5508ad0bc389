package openai

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/coordinator"
	"github.com/octet-run/octet/model/tokenizer"
)

// params is a request of either kind, read.
type params struct {
	model        string
	n            int
	stream       bool
	includeUsage bool
	tokenIDs     bool // return_token_ids
	seed         *uint64
	prompts      [][]int32 // completions: one request each; chat: one
	request      coordinator.Request
	conversation tokenizer.Conversation // chat
	logprobs     bool                   // chat: logprobs
	topLogprobs  int32                  // chat: top_logprobs, -1 when absent
}

// field reads one parameter into p. null never reaches it.
type field func(h *handler, p *params, name string, raw json.RawMessage) error

// The largest n, top_logprobs and number of stop strings.
const (
	maxChoices  = 128
	maxLogprobs = 20
	maxStops    = 16
)

// commonFields are the parameters of completions and of chat completions.
var commonFields = map[string]field{
	"model": func(h *handler, p *params, name string, raw json.RawMessage) error {
		if err := decode(name, raw, &p.model); err != nil {
			return err
		}
		if p.model != h.limits.Model {
			return noSuchModel(p.model, h.limits.Model)
		}
		return nil
	},
	"max_tokens":  intField(1, 1<<30, func(p *params, v int) { p.request.MaxTokens = v }),
	"n":           intField(1, maxChoices, func(p *params, v int) { p.n = v }),
	"temperature": floatField(0, 2, func(p *params, v float32) { p.request.Sampling.Temperature = v }),
	"top_p": func(h *handler, p *params, name string, raw json.RawMessage) error {
		err := floatField(0, 1, func(p *params, v float32) { p.request.Sampling.TopP = v })(h, p, name, raw)
		if err == nil && p.request.Sampling.TopP == 0 {
			return badRequest(name, "top_p must be above 0, got 0")
		}
		return err
	},
	"presence_penalty":  floatField(-2, 2, func(p *params, v float32) { p.request.Sampling.PresencePenalty = v }),
	"frequency_penalty": floatField(-2, 2, func(p *params, v float32) { p.request.Sampling.FrequencyPenalty = v }),
	"seed": func(_ *handler, p *params, name string, raw json.RawMessage) error {
		var seed int64
		err := decode(name, raw, &seed)
		value := uint64(seed)
		p.seed = &value
		return err
	},
	"stop":           readStop,
	"logit_bias":     readLogitBias,
	"stream":         boolField(func(p *params, v bool) { p.stream = v }),
	"stream_options": readStreamOptions,
	"user":           ignoredText, // names the end user; there is nothing to do with it

	"top_k": intField(-1, 1<<30, func(p *params, v int) { p.request.Sampling.TopK = int32(max(v, 0)) }),
	"min_p": floatField(0, 1, func(p *params, v float32) { p.request.Sampling.MinP = v }),
	"repetition_penalty": func(h *handler, p *params, name string, raw json.RawMessage) error {
		err := floatField(0, 1000, func(p *params, v float32) { p.request.Sampling.RepetitionPenalty = v })(h, p, name, raw)
		if err == nil && p.request.Sampling.RepetitionPenalty == 0 {
			return badRequest(name, "repetition_penalty must be above 0, got 0")
		}
		return err
	},
	"stop_token_ids": func(_ *handler, p *params, name string, raw json.RawMessage) error {
		return decode(name, raw, &p.request.StopIDs)
	},
	"ignore_eos":       boolField(func(p *params, v bool) { p.request.IgnoreEOS = v }),
	"return_token_ids": boolField(func(p *params, v bool) { p.tokenIDs = v }),
	"speculation": func(_ *handler, p *params, name string, raw json.RawMessage) error {
		var text string
		if err := decode(name, raw, &text); err != nil {
			return err
		}
		mode, err := coordinator.ParseMode(text)
		if err != nil {
			return badRequest(name, "%v", err)
		}
		p.request.Drafting.Mode = mode
		return nil
	},
}

// read goes through the fields of a request, in name order so that the same request
// has the same error. null is the same as absent.
func (h *handler) read(fields map[string]json.RawMessage, known map[string]field, required ...string) (*params, error) {
	p := &params{n: 1, topLogprobs: -1}
	p.request.Sampling = round.Sampling{Temperature: 1, Logprobs: -1} // OpenAI's default temperature
	for _, name := range required {
		if raw, ok := fields[name]; !ok || string(raw) == "null" {
			return nil, badRequest(name, "%s is missing", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		raw := fields[name]
		if string(raw) == "null" {
			continue
		}
		read, ok := known[name]
		if !ok {
			read, ok = commonFields[name]
		}
		if !ok {
			err := badRequest(name, "unknown parameter %q", name)
			err.Code = "unknown_parameter"
			return nil, err
		}
		if err := read(h, p, name, raw); err != nil {
			return nil, err
		}
	}
	if p.includeUsage && !p.stream {
		return nil, badRequest("stream_options", "stream_options needs stream to be true")
	}
	return p, nil
}

// decode reads a JSON value and names the parameter when it is of another type.
func decode(name string, raw json.RawMessage, into any) error {
	if err := json.Unmarshal(raw, into); err != nil {
		return badRequest(name, "%s cannot be %s: %v", name, shorten(raw), err)
	}
	return nil
}

func shorten(raw json.RawMessage) string {
	const limit = 60
	if len(raw) > limit {
		return string(raw[:limit]) + "..."
	}
	return string(raw)
}

func intField(low, high int, set func(*params, int)) field {
	return func(_ *handler, p *params, name string, raw json.RawMessage) error {
		var value int
		if err := decode(name, raw, &value); err != nil {
			return err
		}
		if value < low || value > high {
			return badRequest(name, "%s must be from %d to %d, got %d", name, low, high, value)
		}
		set(p, value)
		return nil
	}
}

func floatField(low, high float32, set func(*params, float32)) field {
	return func(_ *handler, p *params, name string, raw json.RawMessage) error {
		var value float32
		if err := decode(name, raw, &value); err != nil {
			return err
		}
		if value < low || value > high {
			return badRequest(name, "%s must be from %g to %g, got %g", name, low, high, value)
		}
		set(p, value)
		return nil
	}
}

func boolField(set func(*params, bool)) field {
	return func(_ *handler, p *params, name string, raw json.RawMessage) error {
		var value bool
		err := decode(name, raw, &value)
		set(p, value)
		return err
	}
}

func ignoredText(_ *handler, _ *params, name string, raw json.RawMessage) error {
	var text string
	return decode(name, raw, &text)
}

// only accepts a parameter at the values at which it asks for nothing.
func only(reason string, values ...string) field {
	return func(_ *handler, _ *params, name string, raw json.RawMessage) error {
		if slices.Contains(values, string(raw)) {
			return nil
		}
		err := badRequest(name, "%s is not supported: %s", name, reason)
		err.Code = "unsupported_parameter"
		return err
	}
}

func readStop(_ *handler, p *params, name string, raw json.RawMessage) error {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		p.request.Stop = []string{one}
	} else if err := decode(name, raw, &p.request.Stop); err != nil {
		return err
	}
	if len(p.request.Stop) > maxStops {
		return badRequest(name, "stop may hold %d strings, got %d", maxStops, len(p.request.Stop))
	}
	return nil
}

func readLogitBias(_ *handler, p *params, name string, raw json.RawMessage) error {
	var biases map[string]float32
	if err := decode(name, raw, &biases); err != nil {
		return err
	}
	p.request.Sampling.LogitBias = make(map[int32]float32, len(biases))
	for key, bias := range biases {
		token, err := strconv.ParseInt(key, 10, 32)
		if err != nil {
			return badRequest(name, "logit_bias has the key %q, which is no token id", key)
		}
		if !(bias >= -100 && bias <= 100) {
			return badRequest(name, "logit_bias of token %d must be from -100 to 100, got %g", token, bias)
		}
		p.request.Sampling.LogitBias[int32(token)] = bias
	}
	return nil
}

func readStreamOptions(_ *handler, p *params, name string, raw json.RawMessage) error {
	var options map[string]json.RawMessage
	if err := decode(name, raw, &options); err != nil {
		return err
	}
	for option, value := range options {
		if option != "include_usage" {
			return badRequest(name, "unknown parameter %q", name+"."+option)
		}
		if err := decode(name+"."+option, value, &p.includeUsage); err != nil {
			return err
		}
	}
	return nil
}

// requests are what the coordinator is to run: n for each prompt. Choices of one
// prompt draw from different seeds.
func (p *params) requests(id string) []coordinator.Request {
	seed := coordinator.RandomSeed()
	if p.seed != nil {
		seed = *p.seed
	}
	var list []coordinator.Request
	for _, prompt := range p.prompts {
		for choice := range p.n {
			r := p.request
			r.ID = fmt.Sprintf("%s-%d", id, len(list))
			r.Prompt = prompt
			r.Sampling.Seed = seed + uint64(choice)
			list = append(list, r)
		}
	}
	return list
}
