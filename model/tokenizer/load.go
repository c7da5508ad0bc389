package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	fileTokenizer  = "tokenizer.json"
	fileTiktoken   = "tiktoken.model"
	fileConfig     = "tokenizer_config.json"
	fileGeneration = "generation_config.json"
	fileTemplate   = "chat_template.jinja"

	maxVocabularyFile = 256 << 20 // bytes; published ones have up to 35 MB
	maxConfigFile     = 16 << 20
	maxTokenID        = 1 << 21 // published ones stay below 2^18
)

// Load reads the tokenizer of a checkpoint folder: tokenizer.json or else tiktoken.model, and
// tokenizer_config.json, generation_config.json and chat_template.jinja where present.
func Load(dir string) (*Tokenizer, error) {
	t, err := load(dir)
	var format *FormatError
	if errors.As(err, &format) {
		format.File = filepath.Join(dir, format.File)
	}
	return t, err
}

func load(dir string) (*Tokenizer, error) {
	cfg, err := loadConfig(dir)
	if err != nil {
		return nil, err
	}
	data, err := readFile(dir, fileTokenizer, maxVocabularyFile)
	if err != nil {
		return nil, err
	}
	var t *Tokenizer
	if data != nil {
		t, err = parseTokenizerJSON(data)
		err = inFile(err, fileTokenizer)
	} else {
		data, err = readFile(dir, fileTiktoken, maxVocabularyFile)
		if err == nil && data == nil {
			err = fmt.Errorf("tokenizer: neither %s nor %s is in %s", fileTokenizer, fileTiktoken, dir)
		}
		if err != nil {
			return nil, err
		}
		t, err = parseTiktoken(data, cfg.AddedTokens)
	}
	if err != nil {
		return nil, err
	}
	if err := t.configure(cfg); err != nil {
		return nil, err
	}
	return t, nil
}

// readFile returns nil for a file that does not exist.
func readFile(dir, name string, limit int64) ([]byte, error) {
	path := filepath.Join(dir, name)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	if !info.Mode().IsRegular() { // opening a pipe would wait for its writer
		return nil, &FormatError{File: name, Problem: "is not a file"}
	}
	if info.Size() > limit {
		return nil, &FormatError{File: name, Problem: fmt.Sprintf("has %d bytes, more than the %d a tokenizer file may have",
			info.Size(), limit)}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	if data == nil {
		data = []byte{}
	}
	return data, nil
}

// inFile names the file in a FormatError that has none.
func inFile(err error, name string) error {
	var format *FormatError
	if errors.As(err, &format) && format.File == "" {
		format.File = name
	}
	return err
}

// decodeField decodes the JSON value of a field.
func decodeField(raw []byte, path string, into any) error {
	err := json.Unmarshal(raw, into)
	if err == nil {
		return nil
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return field(path, "is not valid JSON: %v at byte %d", syntax, syntax.Offset)
	}
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		if mismatch.Field != "" {
			if path != "" {
				path += "."
			}
			path += mismatch.Field
		}
		return field(path, "a JSON %s does not fit here (expected %s)", mismatch.Value, jsonKind(mismatch))
	}
	return field(path, "%v", err)
}

func absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

func element(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

func orDefault(value *bool, otherwise bool) bool {
	if value == nil {
		return otherwise
	}
	return *value
}
