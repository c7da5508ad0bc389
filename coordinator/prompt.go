package coordinator

import (
	"errors"

	"github.com/octet-run/octet/model/tokenizer"
)

// loadChat compiles the tokenizer's chat template. That there is none is an error of
// the requests that want one.
func (c *Config) loadChat() {
	c.chatErr = tokenizer.ErrNoChatTemplate
	if c.Tokenizer != nil {
		c.chat, c.chatErr = c.Tokenizer.ChatTemplate()
	}
}

// EncodePrompt returns the tokens of a text, with those the model expects around it.
func (c *Config) EncodePrompt(text string) ([]int32, error) {
	if c.Tokenizer == nil {
		return nil, refuse("prompt", "is text, and this model came without a tokenizer: give token ids")
	}
	if text == "" {
		return nil, refuse("prompt", "is empty: give at least one character, or token ids")
	}
	return c.Tokenizer.Encode(text, true), nil
}

// EncodeChat returns the tokens of a conversation, as the model's chat template
// writes it.
func (c *Config) EncodeChat(conversation tokenizer.Conversation) ([]int32, error) {
	if c.chatErr != nil {
		return nil, refuse("messages", "cannot become a prompt: %v", c.chatErr)
	}
	text, err := c.chat.Render(conversation)
	if refused := (*tokenizer.RefusedError)(nil); errors.As(err, &refused) {
		return nil, refuse("messages", "are refused by the chat template: %s", refused.Reason)
	}
	if err != nil {
		return nil, refuse("messages", "cannot become a prompt: %v", err)
	}
	return c.Tokenizer.Encode(text, false), nil // the template writes the special tokens
}
