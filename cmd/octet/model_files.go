package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/octet-run/octet/model/tokenizer"
)

// loadTokenizer reads a checkpoint's tokenizer, nil where it has none: prompts
// are then token ids.
func loadTokenizer(dir string, vocab int) (*tokenizer.Tokenizer, error) {
	has := false
	for _, name := range []string{"tokenizer.json", "tiktoken.model"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			has = true
		}
	}
	if !has {
		return nil, nil
	}
	t, err := tokenizer.Load(dir)
	if err != nil {
		return nil, err
	}
	if t.VocabSize() > vocab {
		return nil, fmt.Errorf("%s: the tokenizer has %d tokens, config.json says the model scores %d: they do not belong together",
			dir, t.VocabSize(), vocab)
	}
	return t, nil
}

// modelName is what clients call a model: its folder's name.
func modelName(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return filepath.Base(dir)
}
