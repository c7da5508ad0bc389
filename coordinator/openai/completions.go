package openai

import (
	"encoding/json"
	"net/http"

	"github.com/octet-run/octet/coordinator"
)

// defaultMaxTokens is OpenAI's, for completions.
const defaultMaxTokens = 16

var completionFields = map[string]field{
	"prompt":   readPrompt,
	"logprobs": intField(0, maxLogprobs, func(p *params, v int) { p.request.Sampling.Logprobs = int32(v) }),
	"echo":     only("the prompt is not repeated", "false"),
	"suffix":   only("text is not inserted", `""`),
	"best_of":  only("every choice is returned", "1"),
}

// readPrompt takes a text, a list of texts, token ids, or a list of lists of them.
func readPrompt(h *handler, p *params, name string, raw json.RawMessage) error {
	lists, texts, ok := promptLists(raw)
	if !ok {
		return badRequest(name, "prompt must be a string, token ids, or a list of either")
	}
	for _, text := range texts {
		ids, err := h.limits.EncodePrompt(text)
		if err != nil {
			return err
		}
		lists = append(lists, ids)
	}
	if len(lists) == 0 || len(lists) > maxChoices {
		return badRequest(name, "prompt must hold from 1 to %d prompts, got %d", maxChoices, len(lists))
	}
	p.prompts = lists
	return nil
}

// promptLists is a prompt as lists of token ids or as texts.
func promptLists(raw json.RawMessage) (lists [][]int32, texts []string, ok bool) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return nil, []string{text}, true
	}
	if ids, ok := listOf[int32](raw); ok && len(ids) > 0 {
		return [][]int32{ids}, nil, true
	}
	if texts, ok := listOf[string](raw); ok {
		return nil, texts, true
	}
	entries, ok := listOf[json.RawMessage](raw)
	for _, entry := range entries {
		ids, good := listOf[int32](entry)
		lists, ok = append(lists, ids), ok && good
	}
	return lists, nil, ok
}

// listOf decodes a list whose entries are all there: encoding/json takes null for
// a zero.
func listOf[T any](raw json.RawMessage) ([]T, bool) {
	var entries []*T
	if json.Unmarshal(raw, &entries) != nil {
		return nil, false
	}
	list := make([]T, len(entries))
	for i, entry := range entries {
		if entry == nil {
			return nil, false
		}
		list[i] = *entry
	}
	return list, true
}

func (h *handler) completions(w http.ResponseWriter, r *http.Request) {
	fields, err := readFields(w, r)
	if err != nil {
		writeError(w, err)
		return
	}
	p, err := h.read(fields, completionFields, "model", "prompt")
	if err != nil {
		writeError(w, err)
		return
	}
	if p.request.MaxTokens == 0 {
		p.request.MaxTokens = defaultMaxTokens
	}
	h.answer(w, r, p, &completionFormat{newEnvelope(h, "cmpl", "text_completion", "text_completion")})
}

// completionFormat writes the objects of /v1/completions.
type completionFormat struct{ envelope }

type completionChoice struct {
	Index          int                 `json:"index"`
	Text           string              `json:"text"`
	Logprobs       *completionLogprobs `json:"logprobs"`
	FinishReason   *string             `json:"finish_reason"`
	StopReason     *string             `json:"stop_reason,omitempty"`
	TokenIDs       []int32             `json:"token_ids,omitempty"`
	PromptTokenIDs []int32             `json:"prompt_token_ids,omitempty"`
}

// completionLogprobs has one element per token in each list.
type completionLogprobs struct {
	Tokens        []string             `json:"tokens"`
	TokenLogprobs []float32            `json:"token_logprobs"`
	TopLogprobs   []map[string]float32 `json:"top_logprobs"`
	TextOffset    []int                `json:"text_offset"`
}

func (f *completionFormat) whole(h *handler, p *params, c choice) any { return f.part(h, p, c) }

func (f *completionFormat) part(h *handler, p *params, c choice) any {
	out := completionChoice{Index: c.index, Text: c.event.Text, FinishReason: finishReason(c.event.Finish), StopReason: stopReason(c.event.Finish)}
	if p.request.Sampling.Logprobs >= 0 {
		out.Logprobs = h.completionLogprobs(c.event.Tokens)
	}
	if p.tokenIDs {
		out.TokenIDs, out.PromptTokenIDs = tokenIDs(c.event.Tokens), c.prompt
	}
	return out
}

// opening is nothing: the first chunk of a completion is its first text.
func (f *completionFormat) opening(int) any { return nil }

func (h *handler) completionLogprobs(tokens []coordinator.Token) *completionLogprobs {
	out := &completionLogprobs{Tokens: []string{}, TokenLogprobs: []float32{}, TopLogprobs: []map[string]float32{}, TextOffset: []int{}}
	for _, token := range tokens {
		out.Tokens = append(out.Tokens, h.tokenText(token.ID))
		out.TextOffset = append(out.TextOffset, token.Start)
		out.TokenLogprobs = append(out.TokenLogprobs, token.Logprobs.Logprob)
		top := map[string]float32{h.tokenText(token.ID): token.Logprobs.Logprob}
		for _, alternative := range token.Logprobs.Top {
			top[h.tokenText(alternative.Token)] = alternative.Logprob
		}
		out.TopLogprobs = append(out.TopLogprobs, top)
	}
	return out
}
