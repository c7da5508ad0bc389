package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ardanlabs/jinja"
)

// ErrNoChatTemplate is returned for a tokenizer whose files carry no template.
var ErrNoChatTemplate = errors.New("tokenizer: the checkpoint has no chat template (chat_template in tokenizer_config.json, " +
	"or chat_template.jinja)")

// RefusedError is a template's own refusal of a conversation (its raise_exception).
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return "tokenizer: chat template: " + e.Reason }

// Conversation is what a chat template turns into a prompt. Messages and tools are the JSON of the request, because
// templates write parts of them out with their keys in the order given.
type Conversation struct {
	Messages            json.RawMessage // array of messages
	Tools               json.RawMessage // array of tools; nil: none
	AddGenerationPrompt bool            // end with the opening of the assistant's turn
	// Variables are further ones that the template may look at, such as enable_thinking.
	Variables map[string]json.RawMessage
	Now       time.Time // for templates that write the date; zero: the current time
}

// Message is a message of plain text.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// TextMessages returns the JSON of messages for Conversation.
func TextMessages(messages ...Message) json.RawMessage {
	if messages == nil {
		messages = []Message{}
	}
	data, err := json.Marshal(messages)
	if err != nil { // two strings always have a JSON form
		panic(err)
	}
	return data
}

// ChatTemplate renders conversations. It is safe for concurrent use.
type ChatTemplate struct {
	plain, tools *jinja.Template // tools is used when there are some; may be plain
	tokens       map[string]string
}

// toolTemplate is the name of the template for conversations with tools.
const toolTemplate = "tool_use"

// ChatTemplate compiles the checkpoint's template, ErrNoChatTemplate if it has none.
func (t *Tokenizer) ChatTemplate() (*ChatTemplate, error) {
	plain, ok := t.templates[defaultTemplate]
	if !ok {
		return nil, ErrNoChatTemplate
	}
	c := &ChatTemplate{tokens: t.tokenTexts}
	var err error
	if c.plain, err = compileTemplate(defaultTemplate, plain); err != nil {
		return nil, err
	}
	c.tools = c.plain
	if source, ok := t.templates[toolTemplate]; ok {
		c.tools, err = compileTemplate(toolTemplate, source)
	}
	return c, err
}

func compileTemplate(name, source string) (compiled *jinja.Template, err error) {
	defer recoverTemplate(&err)
	prepared, err := prepareTemplate(source)
	if err == nil {
		compiled, err = jinja.Compile(prepared)
	}
	if err != nil {
		return nil, fmt.Errorf("tokenizer: chat template %q cannot be compiled: %w", name, err)
	}
	return compiled, nil
}

// recoverTemplate turns a panic of the template engine, which it has for some malformed
// templates, into an error.
func recoverTemplate(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("tokenizer: chat template: the template engine failed: %v", r)
	}
}

// Render returns the prompt. It is to be encoded without adding special tokens, because
// the template writes them. A *RefusedError says what the template does not accept.
func (c *ChatTemplate) Render(conv Conversation) (text string, err error) {
	run := &templateRun{now: conv.Now}
	values, err := run.values(c.tokens, &conv)
	if err != nil {
		return "", err
	}
	template := c.plain
	if !values["tools"].IsNone() {
		template = c.tools
	}
	defer recoverTemplate(&err)
	text, err = template.RenderValues(values)
	switch {
	case run.refused != nil:
		return "", run.refused
	case err != nil:
		return "", fmt.Errorf("tokenizer: chat template: %w", err)
	}
	return text, nil
}

// values are the variables of a template: those that the transformers library sets, and the functions
// that replace the engine's own.
func (run *templateRun) values(tokens map[string]string, conv *Conversation) (map[string]jinja.Value, error) {
	values := run.functions()
	for name, text := range tokens {
		values[name] = jinja.NewString(text)
	}
	values["add_generation_prompt"] = jinja.NewBool(conv.AddGenerationPrompt)
	values["documents"] = jinja.None()
	for name, raw := range conv.Variables {
		v, err := templateValue(raw)
		if err != nil {
			return nil, fmt.Errorf("tokenizer: chat template variable %s: %w", name, err)
		}
		values[name] = v
	}
	messages, err := templateValue(conv.Messages)
	if err != nil || !messages.IsList() {
		return nil, fmt.Errorf("tokenizer: messages are not a JSON array of messages%s", because(err))
	}
	values["messages"] = messages
	values["tools"] = jinja.None()
	if !absent(conv.Tools) {
		tools, err := templateValue(conv.Tools)
		if err != nil || !tools.IsList() {
			return nil, fmt.Errorf("tokenizer: tools are not a JSON array of tools%s", because(err))
		}
		if tools.AsList().Len() > 0 {
			values["tools"] = tools
		}
	}
	return values, nil
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}
