package coordinator

import "encoding/json"

// EncodePrompt returns the tokens of a text, with those the model expects around it.
func (c *Config) EncodePrompt(text string) ([]int32, error) {
	if c.Tokenizer == nil {
		return nil, refuse("prompt", "is text, and this model came without a tokenizer: give token ids")
	}
	return c.Tokenizer.Encode(text, true), nil
}

// EncodeChat returns the tokens of a conversation: the JSON of its messages, and of
// its tools where there are any.
func (c *Config) EncodeChat(messages, tools json.RawMessage) ([]int32, error) {
	if c.Tokenizer == nil || c.Chat == nil {
		return nil, refuse("messages", "cannot be turned into a prompt: this model came without a chat template")
	}
	text, err := c.Chat(messages, tools)
	if err != nil {
		return nil, refuse("messages", "are not what the chat template takes: %v", err)
	}
	return c.Tokenizer.Encode(text, false), nil // the template writes the special tokens
}
