package tokenizer_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/octet-run/octet/model/tokenizer"
)

type object = map[string]any

const (
	deepSeekMain = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|" +
		"\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
	qwen = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

func splitBy(regex string) object {
	return object{"type": "Split", "pattern": object{"Regex": regex}, "behavior": "Isolated", "invert": false}
}

func sequence(kind, field string, items ...object) object {
	return object{"type": kind, field: items}
}

var bytesOnly = object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}

// byteVocab has all single bytes, ids 0 to 255 in the order of GPT-2's alphabet, and the words given.
func byteVocab(words ...string) object {
	vocab := object{}
	next := 0
	add := func(text string) {
		if _, ok := vocab[text]; !ok {
			vocab[text] = next
			next++
		}
	}
	for r := '!'; r <= 0x143; r++ {
		if r <= '~' || r >= 0xA1 && r != 0xAD {
			add(string(r))
		}
	}
	var merges []string
	for _, word := range words {
		runes := []rune(word)
		for n := 2; n <= len(runes); n++ {
			if _, ok := vocab[string(runes[:n])]; !ok {
				merges = append(merges, string(runes[:n-1])+" "+string(runes[n-1]))
				add(string(runes[:n]))
			}
		}
	}
	return object{"type": "BPE", "vocab": vocab, "merges": merges}
}

func loadFiles(t testing.TB, files map[string]any) (*tokenizer.Tokenizer, error) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		data, ok := content.(string)
		if !ok {
			encoded, err := json.Marshal(content)
			if err != nil {
				t.Fatal(err)
			}
			data = string(encoded)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return tokenizer.Load(dir)
}

func mustLoad(t testing.TB, files map[string]any) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := loadFiles(t, files)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// texts returns the tokens of a text as their file spells them.
func texts(t *testing.T, tok *tokenizer.Tokenizer, ids []int32) string {
	t.Helper()
	var parts []string
	for _, id := range ids {
		text, ok := tok.IDToken(id)
		if !ok {
			t.Fatalf("id %d has no token", id)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " ")
}

func TestPublishedPreTokenizersCutAsTheirs(t *testing.T) {
	byteLevel := object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}
	deepSeek := sequence("Sequence", "pretokenizers", splitBy(`\p{N}{1,3}`), splitBy("[一-龥぀-ゟ゠-ヿ]+"), splitBy(deepSeekMain), bytesOnly)
	words := []string{"Ġworld", "12345", "45", "'s", "Hello", ".x", "Ġ."}
	for _, c := range []struct {
		name string
		pre  object
		norm any
		text string
		want string
	}{
		{"GPT-2 takes digits together", byteLevel, nil, "Hello world 12345", "Hello Ġworld Ġ 12345"},
		{"GPT-2 with a space in front", object{"type": "ByteLevel", "add_prefix_space": true}, nil, "world", "Ġworld"},
		{
			"Qwen takes digits one by one, in NFC", sequence("Sequence", "pretokenizers", splitBy(qwen), bytesOnly),
			object{"type": "NFC"},
			"Hello 12e\u0301", "Hello Ġ 1 2 Ã ©",
		},
		{"DeepSeek takes three digits, then the rest", deepSeek, nil, "12345.x .", "123 45 .x Ġ."},
		{
			"Digits alone", sequence("Sequence", "pretokenizers", object{"type": "Digits", "individual_digits": true}, bytesOnly), nil,
			"a123", "a 1 2 3",
		},
		{
			"Digits together", sequence("Sequence", "pretokenizers", object{"type": "Digits", "individual_digits": false}, bytesOnly), nil,
			"a12345", "a 12345",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			tok := mustLoad(t, map[string]any{"tokenizer.json": object{
				"model": byteVocab(words...), "pre_tokenizer": c.pre, "normalizer": c.norm, "decoder": object{"type": "ByteLevel"},
			}})
			if got := texts(t, tok, tok.Encode(c.text, true)); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestMetaspacePutsItsSpaceWhereItsSchemeSays(t *testing.T) {
	vocab := object{"<unk>": 0, "<s>": 1, "▁": 2, "a": 3, "b": 4, "▁a": 5, "▁b": 6, "ab": 7, "b▁": 8}
	model := object{
		"type": "BPE", "vocab": vocab, "unk_token": "<unk>", "fuse_unk": true,
		"merges": [][]string{{"b", "▁"}, {"▁", "a"}, {"▁", "b"}, {"a", "b"}},
	}
	added := []object{{"id": 1, "content": "<s>", "special": true, "normalized": false}}
	for _, c := range []struct {
		name      string
		metaspace object
		text      string
		want      string
		decoded   string
	}{
		{"always", object{"prepend_scheme": "always", "split": false}, "a<s>b", "▁a <s> ▁b", "a<s> b"},
		{"first", object{"prepend_scheme": "first", "split": false}, "a<s>b", "▁a <s> b", "a<s>b"},
		{"first, not at the start", object{"prepend_scheme": "first", "split": false}, "<s>a", "<s> a", "<s>a"},
		{"never", object{"prepend_scheme": "never", "split": false}, "a", "a", "a"},
		{"a space is not doubled", object{"prepend_scheme": "always", "split": false}, " a", "▁a", "a"},
		{"no split lets merges cross", object{"prepend_scheme": "never", "split": false}, "b a", "b▁ a", "b a"},
		{"split does not", object{"prepend_scheme": "never", "split": true}, "b a", "b ▁a", "b a"},
		{"old files, with", object{"add_prefix_space": true}, "a", "▁a", "a"},
		{"old files, without", object{"add_prefix_space": false}, "a", "a", "a"},
		{"unknown characters fuse", object{"prepend_scheme": "never"}, "aéèb", "a <unk> b", "a<unk>b"},
		{"nothing", object{"prepend_scheme": "always"}, "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			metaspace := object{"type": "Metaspace", "replacement": "▁"}
			maps.Copy(metaspace, c.metaspace)
			tok := mustLoad(t, map[string]any{"tokenizer.json": object{
				"model": model, "added_tokens": added, "pre_tokenizer": metaspace, "decoder": metaspace,
			}})
			ids := tok.Encode(c.text, true)
			if got := texts(t, tok, ids); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			wantText(t, "decoded", tok.Decode(ids, false), c.decoded)
			wantText(t, "streamed", stream(tok, ids, false), c.decoded)
		})
	}
}

func TestAddedTokensMatchAsFlagged(t *testing.T) {
	lower := object{"type": "Replace", "pattern": object{"String": "T"}, "content": "t"}
	for _, c := range []struct {
		name  string
		flags object
		norm  any
		text  string
		want  string
	}{
		{"plain", object{}, nil, "a[T] b", "a [T] Ġ b"},
		{"takes space on the left", object{"lstrip": true}, nil, "a \n[T] b", "a [T] Ġ b"},
		{"takes space on the right", object{"rstrip": true}, nil, "a[T] \tb", "a [T] b"},
		{"both, side by side", object{"lstrip": true, "rstrip": true}, nil, "a [T] [T] b", "a [T] [T] b"},
		{"longest wins", object{}, nil, "[T][TT][TTT", "[T] [TT] [ T T T"},
		{"before normalisation", object{"normalized": false}, lower, "T[T]", "t [T]"},
		{"after normalisation", object{"normalized": true}, lower, "[t][T]", "[T] [T]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			token := object{"id": 300, "content": "[T]"}
			maps.Copy(token, c.flags)
			tok := mustLoad(t, map[string]any{"tokenizer.json": object{
				"model": byteVocab(), "pre_tokenizer": bytesOnly, "normalizer": c.norm,
				"added_tokens": []object{token, {"id": 301, "content": "[TT]", "special": true}, {"id": 302, "content": ""}},
			}})
			if got := texts(t, tok, tok.Encode(c.text, false)); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			// A token that is looked for in its normalised form decodes to that.
			written := "[T]"
			if c.norm != nil && c.flags["normalized"] == true {
				written = "[t]"
			}
			wantText(t, "decoded", tok.Decode([]int32{300}, false), written)
		})
	}
	tok := mustLoad(t, map[string]any{"tokenizer.json": object{
		"model": byteVocab(), "pre_tokenizer": bytesOnly,
		"added_tokens": []object{{"id": 300, "content": "wo", "single_word": true}, {"id": 301, "content": "<s>", "special": true}},
	}})
	for text, want := range map[string]string{
		"wo": "wo", "a wo,": "a Ġ wo ,", "woo": "w o o", "éwo": "Ã © w o", "wo_": "w o _", "<s>": "<s>",
	} {
		if got := texts(t, tok, tok.Encode(text, false)); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if got := texts(t, tok, tok.EncodeOrdinary("<s>wo")); got != "< s > wo" {
		t.Errorf("ordinary: %q", got)
	}
}

func TestBeginAndEndTokensFollowTheFiles(t *testing.T) {
	vocab := object{"a": 0, "<s>": 1, "</s>": 2}
	special := func(id string) object { return object{"SpecialToken": object{"id": id, "type_id": 0}} }
	template := object{
		"type": "TemplateProcessing", "single": []object{special("<s>"), {"Sequence": object{"id": "A"}}, special("</s>")},
		"special_tokens": object{"<s>": object{"id": "<s>", "ids": []int{1}}, "</s>": object{"id": "</s>", "ids": []int{2}}},
	}
	for _, c := range []struct {
		name   string
		post   any
		config object
		want   string
	}{
		{"none", nil, object{}, "a"},
		{"template", template, object{}, "<s> a </s>"},
		{"in a sequence", sequence("Sequence", "processors", object{"type": "ByteLevel"}, template), object{}, "<s> a </s>"},
		{"Roberta", object{"type": "RobertaProcessing", "cls": []any{"<s>", 1}, "sep": []any{"</s>", 2}}, object{}, "<s> a </s>"},
		{
			"the Llama class adds what its configuration says",
			object{"type": "ByteLevel"},
			object{"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": true, "add_eos_token": false, "bos_token": "<s>", "eos_token": "</s>"},
			"<s> a",
		},
		{
			"and leaves out what it says", template,
			object{"tokenizer_class": "LlamaTokenizer", "add_bos_token": false, "bos_token": "<s>", "eos_token": "</s>"},
			"a",
		},
		{"other classes do not", template, object{"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": false}, "<s> a </s>"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tok := mustLoad(t, map[string]any{"tokenizer_config.json": c.config, "tokenizer.json": object{
				"model": object{"type": "BPE", "vocab": vocab, "merges": []string{}}, "post_processor": c.post,
			}})
			if got := texts(t, tok, tok.Encode("a", true)); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if got := texts(t, tok, tok.Encode("a", false)); got != "a" {
				t.Errorf("bare: got %q", got)
			}
		})
	}
}

func TestEndTokensComeFromBothFiles(t *testing.T) {
	tok := mustLoad(t, map[string]any{
		"tokenizer.json":         object{"model": object{"type": "BPE", "vocab": object{"a": 0, "b": 1, "c": 2}, "merges": []string{}}},
		"tokenizer_config.json":  object{"eos_token": object{"content": "a"}, "bos_token": nil},
		"generation_config.json": object{"eos_token_id": []int{2, 1}, "bos_token_id": 1},
	})
	wantIDs(t, "end tokens", "", tok.EOS(), []int32{2, 1, 0})
	if bos, ok := tok.BOS(); !ok || bos != 1 {
		t.Errorf("begin token %d, %v", bos, ok)
	}
}

func base64Line(token []byte, rank int) string {
	return fmt.Sprintf("%s %d\n", base64.StdEncoding.EncodeToString(token), rank)
}
