package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/octet-run/octet/model/nano"
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

// embeddedName is what clients call the embedded model.
const embeddedName = "octet-nano"

func registerModel(flags *pflag.FlagSet, model *string) {
	flags.StringVar(model, "model", "", "folder of a Hugging Face checkpoint (default: the small model in this program)")
}

// unpackPair puts the embedded pair where it can be mapped: the user's cache, or
// the temporary folder for a user that has none.
func unpackPair() (nano.Pair, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	pair, err := nano.Unpack(filepath.Join(dir, "octet"))
	if err != nil {
		pair, err = nano.Unpack(filepath.Join(os.TempDir(), fmt.Sprintf("octet-%d", os.Getuid())))
	}
	return pair, err
}

// modelName is a folder's name.
func modelName(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return filepath.Base(dir)
}
