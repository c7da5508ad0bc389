package openai

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"time"

	"github.com/octet-run/octet/coordinator"
)

// format writes the objects of one endpoint.
type format interface {
	// wrap is the object around choices; usage may be nil.
	wrap(stream bool, choices []any, usage *usage) map[string]any
	// whole is a complete choice, part what a chunk adds to one.
	whole(h *handler, p *params, c choice) any
	part(h *handler, p *params, c choice) any
	// opening is the choice of the first chunk, nil for none.
	opening(index int) any
	name() string
}

// choice is a choice, or a part of one.
type choice struct {
	index  int
	event  coordinator.Event
	prompt []int32 // with the first part
}

// envelope is what all objects of one answer have in common.
type envelope struct {
	id            string
	created       int64
	model         string
	object, chunk string
}

func newEnvelope(h *handler, prefix, object, chunk string) envelope {
	var random [12]byte
	rand.Read(random[:]) // never fails
	return envelope{
		id: prefix + "-" + hex.EncodeToString(random[:]), created: time.Now().Unix(), model: h.limits.Model, object: object, chunk: chunk,
	}
}

func (e *envelope) name() string { return e.id }

func (e *envelope) wrap(stream bool, choices []any, usage *usage) map[string]any {
	object := e.object
	if stream {
		object = e.chunk
	}
	out := map[string]any{"id": e.id, "object": object, "created": e.created, "model": e.model, "choices": choices}
	if usage != nil {
		out["usage"] = usage
	}
	return out
}

// usage counts what was delivered.
type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

func (u *usage) add(f *coordinator.Finish) {
	u.CompletionTokens += f.GeneratedTokens
	u.TotalTokens += f.GeneratedTokens
}

// newUsage counts each prompt once, however many choices it has.
func (p *params) newUsage() *usage {
	u := &usage{}
	for _, prompt := range p.prompts {
		u.PromptTokens += len(prompt)
	}
	u.TotalTokens = u.PromptTokens
	return u
}

// answer runs the requests and writes the answer, at once or as a stream.
func (h *handler) answer(w http.ResponseWriter, r *http.Request, p *params, f format) {
	// When this returns, whatever still runs is cancelled.
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	var streams []*coordinator.Stream
	for _, request := range p.requests(f.name()) {
		stream, err := h.config.Coordinator.Generate(ctx, request)
		if err != nil {
			writeError(w, err)
			return
		}
		streams = append(streams, stream)
	}
	if p.stream {
		h.stream(ctx, w, p, f, streams)
		return
	}
	choices := make([]any, 0, len(streams))
	total := p.newUsage()
	for i, stream := range streams {
		event, err := stream.Collect(ctx)
		if err == nil {
			err = finishError(event.Finish)
		}
		if err != nil {
			writeError(w, err)
			return
		}
		total.add(event.Finish)
		choices = append(choices, f.whole(h, p, choice{index: i, event: event, prompt: stream.Prompt()}))
	}
	writeJSON(w, http.StatusOK, f.wrap(false, choices, total))
}

func finishReason(f *coordinator.Finish) *string {
	if f == nil {
		return nil
	}
	reason := f.Reason.String()
	return &reason
}

// stopReason is the stop string or token that ended the choice.
func stopReason(f *coordinator.Finish) *string {
	if f == nil || f.Stop == "" {
		return nil
	}
	return &f.Stop
}

func tokenIDs(tokens []coordinator.Token) []int32 {
	ids := make([]int32, len(tokens))
	for i, token := range tokens {
		ids[i] = token.ID
	}
	return ids
}

// tokenText is the text of one token by itself.
func (h *handler) tokenText(token int32) string {
	if h.limits.Tokenizer == nil {
		return ""
	}
	return h.limits.Tokenizer.Decode([]int32{token}, false)
}
