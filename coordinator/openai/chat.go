package openai

import (
	"bytes"
	"encoding/json"
	"net/http"

	"github.com/octet-run/octet/coordinator"
)

var chatFields = map[string]field{
	"messages":              readMessages,
	"max_completion_tokens": intField(1, 1<<30, func(p *params, v int) { p.request.MaxTokens = v }),
	"logprobs":              boolField(func(p *params, v bool) { p.logprobs = v }),
	"top_logprobs":          intField(0, maxLogprobs, func(p *params, v int) { p.topLogprobs = int32(v) }),
	"chat_template_kwargs": func(_ *handler, p *params, name string, raw json.RawMessage) error {
		return decode(name, raw, &p.conversation.Variables)
	},
	"response_format": func(h *handler, p *params, name string, raw json.RawMessage) error {
		var format struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(raw, &format) == nil && format.Type == "text" {
			return nil
		}
		return only("the output is text")(h, p, name, raw)
	},
	"tools":               only("tool calls are not parsed from the output", "[]"),
	"tool_choice":         only("there are no tools", `"none"`, `"auto"`),
	"parallel_tool_calls": only("there are no tools", "true", "false"),
	"modalities":          only("the output is text", `["text"]`),
	"store":               only("nothing is stored", "false"),
	"service_tier":        only("there is one tier", `"auto"`, `"default"`),
}

// readMessages takes the messages as they are, for the template. Content that is a
// list of text parts becomes one text; other parts are refused.
func readMessages(_ *handler, p *params, name string, raw json.RawMessage) error {
	var messages []json.RawMessage
	if err := decode(name, raw, &messages); err != nil {
		return err
	}
	if len(messages) == 0 {
		return badRequest(name, "messages must not be empty")
	}
	for i, raw := range messages {
		var message map[string]json.RawMessage
		if err := decode(name, raw, &message); err != nil {
			return err
		}
		var role string
		if json.Unmarshal(message["role"], &role) != nil || role == "" {
			return badRequest(name, "messages[%d] has no role", i)
		}
		content := bytes.TrimSpace(message["content"])
		if len(content) == 0 || content[0] != '[' {
			continue
		}
		text, err := joinParts(name, i, content)
		if err != nil {
			return err
		}
		message["content"] = text
		if messages[i], err = json.Marshal(message); err != nil {
			return badRequest(name, "messages[%d]: %v", i, err)
		}
	}
	var err error
	p.conversation.Messages, err = json.Marshal(messages)
	return err
}

// joinParts makes one JSON string of a list of text parts.
func joinParts(name string, index int, content json.RawMessage) (json.RawMessage, error) {
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := decode(name, content, &parts); err != nil {
		return nil, err
	}
	var text bytes.Buffer
	for _, part := range parts {
		if part.Type != "text" {
			return nil, badRequest(name, "messages[%d] has content of type %q; only text is supported", index, part.Type)
		}
		text.WriteString(part.Text)
	}
	return json.Marshal(text.String())
}

func (h *handler) chatCompletions(w http.ResponseWriter, r *http.Request) {
	fields, err := readFields(w, r)
	if err != nil {
		writeError(w, err)
		return
	}
	p, err := h.read(fields, chatFields, "model", "messages")
	if err == nil {
		err = p.finishChat(h)
	}
	if err != nil {
		writeError(w, err)
		return
	}
	h.answer(w, r, p, &chatFormat{newEnvelope(h, "chatcmpl", "chat.completion", "chat.completion.chunk")})
}

// finishChat settles what depends on several parameters.
func (p *params) finishChat(h *handler) error {
	switch {
	case p.topLogprobs >= 0 && !p.logprobs:
		return badRequest("top_logprobs", "top_logprobs needs logprobs to be true")
	case p.logprobs:
		p.request.Sampling.Logprobs = max(p.topLogprobs, 0)
	}
	p.conversation.AddGenerationPrompt = true
	prompt, err := h.limits.EncodeChat(p.conversation)
	p.prompts = [][]int32{prompt}
	return err
}

// chatFormat writes the objects of /v1/chat/completions.
type chatFormat struct{ envelope }

type chatMessage struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

type chatChoice struct {
	Index          int           `json:"index"`
	Message        *chatMessage  `json:"message,omitempty"`
	Delta          *chatMessage  `json:"delta,omitempty"`
	Logprobs       *chatLogprobs `json:"logprobs"`
	FinishReason   *string       `json:"finish_reason"`
	StopReason     *string       `json:"stop_reason,omitempty"`
	TokenIDs       []int32       `json:"token_ids,omitempty"`
	PromptTokenIDs []int32       `json:"prompt_token_ids,omitempty"`
}

// chatLogprobs has one element per token.
type chatLogprobs struct {
	Content []chatTokenLogprob `json:"content"`
}

type chatTokenLogprob struct {
	chatLogprob
	Top []chatLogprob `json:"top_logprobs"`
}

type chatLogprob struct {
	Token   string  `json:"token"`
	Logprob float32 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

func (f *chatFormat) whole(h *handler, p *params, c choice) any {
	out := f.choice(h, p, c)
	out.Message = &chatMessage{Role: "assistant", Content: &c.event.Text}
	return out
}

func (f *chatFormat) part(h *handler, p *params, c choice) any {
	out := f.choice(h, p, c)
	out.Delta = &chatMessage{}
	if c.event.Text != "" {
		out.Delta.Content = &c.event.Text
	}
	return out
}

// opening is the chunk that names the role.
func (f *chatFormat) opening(index int) any {
	empty := ""
	return chatChoice{Index: index, Delta: &chatMessage{Role: "assistant", Content: &empty}}
}

func (f *chatFormat) choice(h *handler, p *params, c choice) chatChoice {
	out := chatChoice{Index: c.index, FinishReason: finishReason(c.event.Finish), StopReason: stopReason(c.event.Finish)}
	if p.logprobs {
		out.Logprobs = h.chatLogprobs(c.event.Tokens)
	}
	if p.tokenIDs {
		out.TokenIDs, out.PromptTokenIDs = tokenIDs(c.event.Tokens), c.prompt
	}
	return out
}

func (h *handler) chatLogprobs(tokens []coordinator.Token) *chatLogprobs {
	out := &chatLogprobs{Content: []chatTokenLogprob{}}
	for _, token := range tokens {
		entry := chatTokenLogprob{chatLogprob: h.chatLogprob(token.ID, token.Logprobs.Logprob), Top: []chatLogprob{}}
		for _, top := range token.Logprobs.Top {
			entry.Top = append(entry.Top, h.chatLogprob(top.Token, top.Logprob))
		}
		out.Content = append(out.Content, entry)
	}
	return out
}

func (h *handler) chatLogprob(token int32, logprob float32) chatLogprob {
	text := h.tokenText(token)
	values := make([]int, len(text))
	for i := range len(text) {
		values[i] = int(text[i])
	}
	return chatLogprob{Token: text, Logprob: logprob, Bytes: values}
}
