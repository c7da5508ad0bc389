package tokenizer

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
)

// config is what the files beside the vocabulary say.
type config struct {
	Class       string                `json:"tokenizer_class"`
	BOS         *tokenText            `json:"bos_token"`
	EOS         *tokenText            `json:"eos_token"`
	Unknown     *tokenText            `json:"unk_token"`
	Pad         *tokenText            `json:"pad_token"`
	AddBOS      *bool                 `json:"add_bos_token"`
	AddEOS      *bool                 `json:"add_eos_token"`
	AddedTokens map[string]addedToken `json:"added_tokens_decoder"`
	Templates   templateTexts         `json:"chat_template"`

	generation struct {
		BOS *tokenIDs `json:"bos_token_id"`
		EOS *tokenIDs `json:"eos_token_id"`
	}
}

// tokenText is "text" or {"content": "text"}.
type tokenText string

func (t *tokenText) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '{' {
		var token addedToken
		err := json.Unmarshal(data, &token)
		*t = tokenText(token.Content)
		return err
	}
	return json.Unmarshal(data, (*string)(t))
}

// tokenIDs is one id or a list.
type tokenIDs []int32

func (t *tokenIDs) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '[' {
		return json.Unmarshal(data, (*[]int32)(t))
	}
	*t = make(tokenIDs, 1)
	return json.Unmarshal(data, &(*t)[0])
}

// templateTexts is one template or a list of named ones.
type templateTexts map[string]string

func (t *templateTexts) UnmarshalJSON(data []byte) error {
	if absent(data) {
		return nil
	}
	*t = templateTexts{}
	if len(data) > 0 && data[0] == '[' {
		var named []struct {
			Name     string `json:"name"`
			Template string `json:"template"`
		}
		if err := json.Unmarshal(data, &named); err != nil {
			return err
		}
		for _, n := range named {
			(*t)[n.Name] = n.Template
		}
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	(*t)[defaultTemplate] = text
	return nil
}

// defaultTemplate is the name of the template for conversations without a reason for another.
const defaultTemplate = "default"

func loadConfig(dir string) (*config, error) {
	cfg := &config{}
	for name, into := range map[string]any{fileConfig: cfg, fileGeneration: &cfg.generation} {
		data, err := readFile(dir, name, maxConfigFile)
		if err != nil {
			return nil, err
		}
		if data == nil {
			continue
		}
		if err := decodeField(data, "", into); err != nil {
			return nil, inFile(err, name)
		}
	}
	data, err := readFile(dir, fileTemplate, maxConfigFile)
	if err != nil {
		return nil, err
	}
	if data != nil { // the newer place of the default template
		if cfg.Templates == nil {
			cfg.Templates = templateTexts{}
		}
		cfg.Templates[defaultTemplate] = string(data)
	}
	return cfg, nil
}

// configure applies what the configuration files say about the loaded vocabulary.
func (t *Tokenizer) configure(cfg *config) error {
	t.bos = noToken
	t.templates = cfg.Templates
	eosText := int32(noToken)
	t.tokenTexts = map[string]string{}
	for name, text := range map[string]*tokenText{
		"bos_token": cfg.BOS, "eos_token": cfg.EOS, "unk_token": cfg.Unknown, "pad_token": cfg.Pad,
	} {
		if text != nil {
			t.tokenTexts[name] = string(*text)
		}
	}
	for _, token := range []struct {
		name string
		text *tokenText
		id   *int32
	}{{"bos_token", cfg.BOS, &t.bos}, {"eos_token", cfg.EOS, &eosText}} {
		if token.text == nil {
			continue
		}
		id, ok := t.ids[string(*token.text)]
		if !ok {
			return &FormatError{fileConfig, token.name, fmt.Sprintf("%q is not a token of the vocabulary", *token.text)}
		}
		*token.id = id
	}
	if ids := cfg.generation.BOS; t.bos == noToken && ids != nil && len(*ids) > 0 {
		t.bos = (*ids)[0]
	}
	if ids := cfg.generation.EOS; ids != nil {
		// They may be rows of the model that have no text, but never negative.
		for _, id := range *ids {
			if id < 0 {
				return &FormatError{fileGeneration, "eos_token_id", fmt.Sprintf("token id %d is negative", id)}
			}
		}
		t.eos = append(t.eos, *ids...)
	}
	if eosText != noToken && !slices.Contains(t.eos, eosText) {
		t.eos = append(t.eos, eosText)
	}
	t.overridePost(cfg, eosText)
	return nil
}

// overridePost follows the Llama tokenizer classes, which build their post-processor from
// add_bos_token and add_eos_token whatever tokenizer.json says (DeepSeek-V3 relies on it).
func (t *Tokenizer) overridePost(cfg *config, eos int32) {
	if cfg.Class != "LlamaTokenizer" && cfg.Class != "LlamaTokenizerFast" || cfg.AddBOS == nil && cfg.AddEOS == nil {
		return
	}
	t.post = postProcessor{}
	if orDefault(cfg.AddBOS, true) && t.bos != noToken {
		t.post.before = []int32{t.bos}
	}
	if orDefault(cfg.AddEOS, false) && eos != noToken {
		t.post.after = []int32{eos}
	}
}

// jsonKind names what a field wants in the words of JSON.
func jsonKind(err *json.UnmarshalTypeError) string {
	switch err.Type.Kind() {
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "an integer"
	}
	return err.Type.String()
}
