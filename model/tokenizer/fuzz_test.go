package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"
)

func readFixture(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("../../testdata/fixtures/tokenizers", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// small returns a tokenizer.json with only the first tokens of its vocabulary, for mutation.
func small(t testing.TB, data []byte) []byte {
	t.Helper()
	var file map[string]any
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	model := file["model"].(map[string]any)
	model["merges"] = []any{}
	for text, id := range model["vocab"].(map[string]any) {
		if id.(float64) > 5 {
			delete(model["vocab"].(map[string]any), text)
		}
	}
	data, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func FuzzTokenizerJSON(f *testing.F) {
	f.Add(small(f, readFixture(f, "llama3/tokenizer.json")), "Hello <|begin_of_text|>")
	f.Add(small(f, readFixture(f, "llama2/tokenizer.json")), " é\n")
	f.Add([]byte(`{"model": {"vocab": {"▁": 0, "a": 1, "▁a": 2}, "merges": ["▁ a"]}, "pre_tokenizer": {"type": "Metaspace",
		"replacement": "▁"}, "decoder": {"type": "Metaspace", "replacement": "▁"}}`), "a a")
	f.Add([]byte(`{"model": {"vocab": {"a": 0}, "merges": []}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits",
		"individual_digits": true}, {"type": "Split", "pattern": {"String": "b"}, "behavior": "MergedWithPrevious"}]},
		"normalizer": {"type": "NFC"}, "decoder": {"type": "Strip", "content": " ", "start": 1, "stop": 1}}`), "ab1")
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		tok, err := parseTokenizerJSON(data)
		if err != nil {
			return
		}
		checkAny(t, tok, text)
	})
}

func FuzzTiktoken(f *testing.F) {
	f.Add(readFixture(f, "kimi/tiktoken.model"), "<|reserved_token_1505|>", "1505")
	f.Add([]byte("IQ== 0\nIg== 1\n"), "x", "2")
	f.Fuzz(func(t *testing.T, data []byte, special, id string) {
		tok, err := parseTiktoken(data, map[string]addedToken{id: {Content: special, Special: true}})
		if err != nil {
			return
		}
		checkAny(t, tok, "a"+special+"b")
	})
}

// checkAny is what holds for every tokenizer and text.
func checkAny(t *testing.T, tok *Tokenizer, text string) {
	t.Helper()
	ids := tok.Encode(text, true)
	for _, id := range ids {
		if _, ok := tok.IDToken(id); !ok {
			t.Fatalf("id %d of %q has no token", id, text)
		}
	}
	checkStream(t, tok, ids, tok.Decode(ids, false))
	tok.EncodeOrdinary(text)
}

func FuzzByteLevelRoundTrip(f *testing.F) {
	for _, text := range fragments {
		f.Add(text)
	}
	f.Add("func (s *Server) Serve(ctx context.Context) error {\n\treturn nil\n}\n")
	llama, kimi := mustLoadFixture(f, "llama3"), mustLoadFixture(f, "kimi")
	f.Fuzz(func(t *testing.T, text string) {
		for _, tok := range []*Tokenizer{llama, kimi} {
			ids := tok.Encode(text, false)
			got := tok.Decode(ids, false)
			if want := validText(text); got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
			if utf8.ValidString(text) && got != text {
				t.Fatalf("got %q, want %q", got, text)
			}
			checkStream(t, tok, ids, got)
		}
	})
}
