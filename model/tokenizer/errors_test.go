package tokenizer_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/octet-run/octet/model/tokenizer"
)

func TestBadFilesAreRefusedInOneSentence(t *testing.T) {
	hf := func(fields object) map[string]any {
		file := object{"model": object{"type": "BPE", "vocab": object{"a": 0, "b": 1, "ab": 2}, "merges": []string{"a b"}}}
		for name, value := range fields {
			file[name] = value
		}
		return map[string]any{"tokenizer.json": file}
	}
	model := func(fields object) map[string]any {
		m := object{"type": "BPE", "vocab": object{"a": 0, "b": 1}, "merges": []string{}}
		for name, value := range fields {
			m[name] = value
		}
		return hf(object{"model": m})
	}
	with := func(files map[string]any, name string, content any) map[string]any {
		files[name] = content
		return files
	}
	var ranks strings.Builder // all single bytes
	for b := range 256 {
		ranks.WriteString(base64Line([]byte{byte(b)}, b))
	}
	kimi := func(more string, config any) map[string]any {
		return map[string]any{"tiktoken.model": ranks.String() + more, "tokenizer_config.json": config}
	}
	token := func(id, content string) object {
		return object{"added_tokens_decoder": object{id: object{"content": content, "special": true}}}
	}
	for _, c := range []struct {
		name  string
		files map[string]any
		want  string // part of the error
	}{
		{"no files", map[string]any{}, "neither tokenizer.json nor tiktoken.model"},
		{"no JSON", map[string]any{"tokenizer.json": `{"model": `}, "tokenizer.json: is not valid JSON"},
		{"empty", map[string]any{"tokenizer.json": ""}, "tokenizer.json: is not valid JSON"},
		{"not an object", map[string]any{"tokenizer.json": `[]`}, "expected an object"},
		{"no model", map[string]any{"tokenizer.json": `{}`}, "model.vocab: is missing or empty"},
		{"another model", hf(object{"model": object{"type": "Unigram", "vocab": []any{[]any{"a", 0.5}}}}), `model.type: "Unigram" is not supported`},
		{"WordPiece", model(object{"type": "WordPiece"}), `model.type: "WordPiece" is not supported`},
		{"text for an id", model(object{"vocab": object{"a": "x"}}), "model.vocab: a JSON string does not fit"},
		{"fraction for an id", model(object{"vocab": object{"a": 0.5}}), "model.vocab: a JSON number 0.5 does not fit"},
		{"negative id", model(object{"vocab": object{"a": -1}}), `model.vocab["a"]: token id -1`},
		{"huge id", model(object{"vocab": object{"a": 1 << 30}}), "token id 1073741824"},
		{"id given twice", model(object{"vocab": object{"a": 3, "b": 3}}), `model.vocab: id 3 is given to both "a" and "b"`},
		{"merge of an unknown token", model(object{"merges": []string{"a c"}}), `model.merges[0]: token "c" is not in the vocabulary`},
		{"merge into an unknown token", model(object{"merges": [][]string{{"a", "b"}}}), `token "ab" is not in the vocabulary`},
		{"merge of one", model(object{"merges": []string{"ab"}}), `merge 0 is "ab"`},
		{"merge of three", model(object{"merges": []string{"a b c"}}), `merge 0 is "a b c"`},
		{"merges as an object", model(object{"merges": object{}}), "does not fit"},
		{"dropout", model(object{"dropout": 0.1}), "model.dropout"},
		{"subword prefix", model(object{"continuing_subword_prefix": "##"}), "model.continuing_subword_prefix"},
		{"word suffix", model(object{"end_of_word_suffix": "</w>"}), "model.end_of_word_suffix"},
		{"unknown token out of the vocabulary", model(object{"unk_token": "<unk>"}), `model.unk_token: "<unk>"`},
		{"added token with another id", hf(object{"added_tokens": []object{{"id": 7, "content": "a"}}}), `added_tokens[0]: "a" has id 7 here and 0`},
		{"added token on a used id", hf(object{"added_tokens": []object{{"id": 1, "content": "x"}}}), `id 1 of "x" is already that of "b"`},
		{"added token with a huge id", hf(object{"added_tokens": []object{{"id": 1 << 28, "content": "x"}}}), "added_tokens[0]: token id"},
		{"unknown normalizer", hf(object{"normalizer": object{"type": "Precompiled"}}), `normalizer.type: normalizer "Precompiled"`},
		{
			"nested normalizer", hf(object{"normalizer": sequence("Sequence", "normalizers", object{"type": "NFC"}, object{"type": "X"})}),
			"normalizer.normalizers[1].type",
		},
		{
			"regex normalizer", hf(object{"normalizer": object{"type": "Replace", "pattern": object{"Regex": " {2,}"}, "content": ""}}),
			"normalizer.pattern.Regex",
		},
		{"unknown pre-tokenizer", hf(object{"pre_tokenizer": object{"type": "Whitespace"}}), `pre-tokenizer "Whitespace"`},
		{
			"unknown pattern", hf(object{"pre_tokenizer": sequence("Sequence", "pretokenizers", splitBy(`\w+`), bytesOnly)}),
			`pre_tokenizer.pretokenizers[0].pattern.Regex: the pattern "\\w+"`,
		},
		{
			"unknown behavior", hf(object{"pre_tokenizer": object{"type": "Split", "pattern": object{"String": " "}, "behavior": "X"}}),
			"pre_tokenizer.behavior",
		},
		{"empty pattern", hf(object{"pre_tokenizer": object{"type": "Split", "behavior": "Isolated"}}), "pre_tokenizer.pattern: is empty"},
		{"bytes not last", hf(object{"pre_tokenizer": sequence("Sequence", "pretokenizers", bytesOnly, splitBy(qwen))}), "must come last"},
		{"metaspace of two characters", hf(object{"pre_tokenizer": object{"type": "Metaspace", "replacement": "__"}}), "replacement"},
		{"metaspace scheme", hf(object{"pre_tokenizer": object{"type": "Metaspace", "replacement": "_", "prepend_scheme": "x"}}), "prepend_scheme"},
		{"unknown post-processor", hf(object{"post_processor": object{"type": "X"}}), "post_processor.type"},
		{"two templates", hf(object{"post_processor": object{"type": "Sequence", "processors": []object{
			{"type": "BertProcessing", "sep": []any{"a", 0}, "cls": []any{"a", 0}},
			{"type": "RobertaProcessing", "sep": []any{"a", 0}, "cls": []any{"a", 0}},
		}}}), "post_processor.processors[1]: tokens are put around a text twice"},
		{"template without text", hf(object{"post_processor": object{"type": "TemplateProcessing", "single": []any{}}}), "the Sequence A is missing"},
		{"template with an unknown token", hf(object{"post_processor": object{
			"type": "TemplateProcessing", "single": []object{{"SpecialToken": object{"id": "<s>"}}},
		}}), `special token "<s>" has no entry`},
		{"template with token ids out of the vocabulary", hf(object{"post_processor": object{
			"type": "RobertaProcessing", "cls": []any{"<s>", 77}, "sep": []any{"</s>", 2},
		}}), "post_processor: token id 77 is not in the vocabulary"},
		{"unknown decoder", hf(object{"decoder": object{"type": "WordPiece"}}), `decoder "WordPiece"`},
		{
			"decoder bytes too late", hf(object{"decoder": sequence("Sequence", "decoders", object{"type": "Fuse"}, object{"type": "ByteLevel"})}),
			"decoder.decoders[1]",
		},
		{"field of another type", hf(object{"decoder": object{"type": 7}}), "decoder.type: a JSON number does not fit"},
		{
			"configured token out of the vocabulary", with(hf(nil), "tokenizer_config.json", object{"eos_token": "</s>"}),
			`tokenizer_config.json: eos_token: "</s>" is not a token`,
		},
		{"broken configuration", with(hf(nil), "tokenizer_config.json", "{"), "tokenizer_config.json: is not valid JSON"},
		{"broken generation configuration", with(hf(nil), "generation_config.json", object{"eos_token_id": "x"}), "generation_config.json: eos_token_id"},
		{
			"negative end token", with(hf(nil), "generation_config.json", object{"eos_token_id": []int{1, -1}}),
			"generation_config.json: eos_token_id: token id -1 is negative",
		},

		{"rank missing", map[string]any{"tiktoken.model": "IQ==\n"}, "tiktoken.model: line 1: expected a base64 token and its rank"},
		{"no base64", map[string]any{"tiktoken.model": "!! 0\n"}, `line 1: "!!" is not a base64 token`},
		{"negative rank", map[string]any{"tiktoken.model": "IQ== -1\n"}, `"-1" is not a rank`},
		{"huge rank", map[string]any{"tiktoken.model": "IQ== 99999999999\n"}, "is not a rank"},
		{"token twice", map[string]any{"tiktoken.model": "IQ== 0\nIQ== 1\n"}, `line 2: token "!" has rank 0 already`},
		{"rank twice", kimi(base64Line([]byte("ab"), 3), object{}), "is given to more than one token"},
		{"gap in the ranks", kimi(base64Line([]byte("ab"), 300), object{}), "ranks must have no gaps"},
		{"byte missing", map[string]any{"tiktoken.model": "IQ== 0\n"}, "byte 0x00 has no token"},
		{"special token out of range", kimi("", token("900", "x")), "tokenizer_config.json: added_tokens_decoder.900: expected an id between 256 and 511"},
		{"special id is no number", kimi("", token("x", "y")), "added_tokens_decoder.x"},
		{
			"special token twice", kimi("", object{"added_tokens_decoder": object{"256": object{"content": "x"}, "257": object{"content": "x"}}}),
			`added_tokens_decoder.257: "x" has id 256 already`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := loadFiles(t, c.files)
			if err == nil {
				t.Fatal("loads")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %q, want it to say %q", err, c.want)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q is more than one line", err)
			}
			var format *tokenizer.FormatError
			if c.name != "no files" && !errors.As(err, &format) {
				t.Errorf("%T is no *FormatError", err)
			}
		})
	}
}

func TestHugeFilesAreNotRead(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"tokenizer_config.json", "tokenizer.json"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, 300<<20); err != nil { // sparse
			t.Fatal(err)
		}
		if _, err := tokenizer.Load(dir); err == nil || !strings.Contains(err.Error(), name+": has 314572800 bytes, more than") {
			t.Errorf("%s: %v", name, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}
