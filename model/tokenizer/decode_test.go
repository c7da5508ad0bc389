package tokenizer

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// naiveDecode is a decoder as the tokenizers library defines it: every decoder turns the whole list of
// tokens into another, and what is left is joined.
func naiveDecode(t *testing.T, raw json.RawMessage, tokens []string) []string {
	var spec decoderSpec
	if err := json.Unmarshal(raw, &spec); err != nil {
		t.Fatal(err)
	}
	each := func(apply func(i int, token string) string) []string {
		out := make([]string, len(tokens))
		for i, token := range tokens {
			out[i] = apply(i, token)
		}
		return out
	}
	switch spec.Type {
	case "Sequence":
		for _, raw := range spec.Decoders {
			tokens = naiveDecode(t, raw, tokens)
		}
		return tokens
	case "ByteLevel":
		alphabet := newByteAlphabet()
		var all []byte
		for _, token := range tokens {
			if b, ok := alphabet.decode(token); ok {
				token = b
			}
			all = append(all, token...)
		}
		return []string{string(appendLossy(nil, all))}
	case "Replace":
		return each(func(_ int, s string) string { return strings.ReplaceAll(s, *spec.Pattern.String, spec.Content) })
	case "Fuse":
		return []string{strings.Join(tokens, "")}
	case "Metaspace":
		space := map[bool]string{false: " "}
		return each(func(i int, s string) string {
			return strings.ReplaceAll(s, spec.Replacement, space[i == 0 && spec.PrependScheme != "never"])
		})
	case "Strip":
		return each(func(_ int, s string) string {
			for range spec.Start {
				s = strings.TrimPrefix(s, spec.Content)
			}
			for range spec.Stop {
				s = strings.TrimSuffix(s, spec.Content)
			}
			return s
		})
	case "ByteFallback":
		var out []string
		var run []byte
		endRun := func() {
			if utf8.Valid(run) && len(run) > 0 {
				out = append(out, string(run))
			} else {
				out = append(out, slices.Repeat([]string{"\ufffd"}, len(run))...)
			}
			run = nil
		}
		for _, token := range tokens {
			var b byte
			if n, err := fmt.Sscanf(token, "<0x%02X>", &b); len(token) == 6 && n == 1 && err == nil {
				run = append(run, b)
				continue
			}
			endRun()
			out = append(out, token)
		}
		endRun()
		return out
	}
	t.Fatalf("no naive decoder for %q", spec.Type)
	return nil
}

const (
	replaceMark = `{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}`
	llamaChain  = `{"type": "Sequence", "decoders": [` + replaceMark + `, {"type": "ByteFallback"}, {"type": "Fuse"},
		{"type": "Strip", "content": " ", "start": 1, "stop": 0}]}`
)

func TestDecodersAgreeWithTheirDefinition(t *testing.T) {
	tokens := []string{"a", "▁a", "▁", "▁▁b", " ", "  c ", "x▁ y", "é", "Ġ", "Ċ", "ä½ł", "ä½", "å", "🙂", "ï¿½", "Ã", "©", "<s>", "<0xZZ>"}
	for b := range 256 {
		tokens = append(tokens, byteToken(byte(b)))
	}
	vocabulary := make([]vocabularyEntry, len(tokens))
	for id, text := range tokens {
		vocabulary[id] = vocabularyEntry{text: text, present: true}
	}
	rng := rand.New(rand.NewPCG(3, 3))
	for _, raw := range []string{
		`{"type": "ByteLevel"}`,
		llamaChain,
		`{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}`,
		`{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"}`,
		`{"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Metaspace", "replacement": "▁"}]}`,
		`{"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}, ` + replaceMark + `]}`,
		`{"type": "Sequence", "decoders": [{"type": "Strip", "content": " ", "start": 1, "stop": 2}, {"type": "ByteFallback"}]}`,
		`{"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 0, "stop": 2}]}`,
		`{"type": "Sequence", "decoders": [{"type": "ByteLevel"}, {"type": "Strip", "content": "c", "start": 0, "stop": 1}]}`,
	} {
		d, err := parseDecoder(json.RawMessage(raw), vocabulary)
		if err != nil {
			t.Fatal(err)
		}
		tok := &Tokenizer{vocabulary: vocabulary, decoder: d}
		for range 2000 {
			ids := make([]int32, rng.IntN(12))
			list := make([]string, len(ids))
			for i := range ids {
				ids[i] = int32(rng.IntN(len(tokens)))
				if rng.IntN(3) > 0 {
					ids[i] = int32(rng.IntN(19))
				}
				if rng.IntN(4) == 0 { // bytes that make characters
					ids[i] = 19 + int32("🙂你é"[rng.IntN(9)])
				}
				list[i] = tokens[ids[i]]
			}
			want := strings.Join(naiveDecode(t, json.RawMessage(raw), list), "")
			if got := tok.Decode(ids, false); got != want {
				t.Fatalf("%s\n%q\n got %q\nwant %q", raw, list, got, want)
			}
			checkStream(t, tok, ids, want)
		}
	}
}

// checkStream streams ids and checks that what comes out is whole characters and together want.
func checkStream(t *testing.T, tok *Tokenizer, ids []int32, want string) {
	t.Helper()
	s := tok.NewStream(false)
	var all strings.Builder
	for _, id := range ids {
		part := s.Push(id)
		if !utf8.ValidString(part) {
			t.Fatalf("ids %v: part %q is no whole text", ids, part)
		}
		all.WriteString(part)
	}
	all.WriteString(s.Flush())
	if all.String() != want {
		t.Fatalf("ids %v:\nstreamed %q\n decoded %q", ids, all.String(), want)
	}
}

func TestWithoutDecoderTokensAreJoinedBySpaces(t *testing.T) {
	vocabulary := []vocabularyEntry{{text: "a", present: true}, {text: "b", present: true}}
	d, err := parseDecoder(json.RawMessage("null"), vocabulary)
	if err != nil {
		t.Fatal(err)
	}
	tok := &Tokenizer{vocabulary: vocabulary, decoder: d}
	if got := tok.Decode([]int32{0, 1, 7, -1, 0}, false); got != "a b a" {
		t.Errorf("got %q", got)
	}
}

func TestStreamsOfAnyTokensEqualDecode(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for _, name := range []string{"llama3", "llama2", "kimi"} {
		tok := mustLoadFixture(t, name)
		for range 300 {
			ids := make([]int32, rng.IntN(40))
			for i := range ids {
				ids[i] = int32(rng.IntN(tok.VocabSize()+20)) - 10
				if rng.IntN(2) == 0 { // single bytes
					ids[i] = int32(rng.IntN(260))
				}
			}
			checkStream(t, tok, ids, tok.Decode(ids, false))
		}
	}
}

func TestByteLevelTextSurvivesTheRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for _, name := range []string{"llama3", "kimi"} {
		tok := mustLoadFixture(t, name)
		for range 1000 {
			text := randomText(rng, rng.IntN(30))
			if got := tok.Decode(tok.Encode(text, false), false); got != text {
				t.Fatalf("%s:\n got %q\nwant %q", name, got, text)
			}
			if got := tok.Decode(tok.EncodeOrdinary(text), true); got != text {
				t.Fatalf("%s ordinary:\n got %q\nwant %q", name, got, text)
			}
		}
	}
}

// TestStreamsPromptlyEmitWhatIsCertain keeps the stream from holding back more than it must.
func TestStreamsPromptlyEmitWhatIsCertain(t *testing.T) {
	tok := mustLoadFixture(t, "llama3")
	s := tok.NewStream(true)
	var got []string
	for _, b := range []byte("a🙂b\xe4\xbdc") {
		got = append(got, s.Push(tok.model.byteIDs[b]))
	}
	got = append(got, s.Flush())
	want := []string{"a", "", "", "", "🙂", "b", "", "", "\ufffdc", ""}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestContextIsNotEmittedButCounts(t *testing.T) {
	tok := mustLoadFixture(t, "llama2")
	ids := tok.Encode("Hello world", true)
	whole := tok.Decode(ids, true)
	for cut := range len(ids) {
		s := tok.NewStream(true)
		s.Context(ids[:cut]...)
		var rest string
		for _, id := range ids[cut:] {
			rest += s.Push(id)
		}
		rest += s.Flush()
		if want := strings.TrimPrefix(whole, tok.Decode(ids[:cut], true)); rest != want {
			t.Errorf("after %d tokens: got %q, want %q", cut, rest, want)
		}
	}
}

func TestInvalidTextEncodesAsReplacements(t *testing.T) {
	tok := mustLoadFixture(t, "kimi")
	for in, want := range map[string]string{
		"a\xffb": "a\ufffdb", "\xe4\xbd": "\ufffd", "\xe4\xbdA": "\ufffdA", "\xed\xa0\x80": "\ufffd\ufffd\ufffd", "\xf0\x9f\x99\x41": "\ufffdA",
		"\xc0\xaf": "\ufffd\ufffd", "\xf4\x90\x80\x80": "\ufffd\ufffd\ufffd\ufffd", "é\xc3": "é\ufffd", "\x80": "\ufffd",
	} {
		if got := tok.Decode(tok.Encode(in, false), false); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func mustLoadFixture(t testing.TB, name string) *Tokenizer {
	t.Helper()
	tok, err := Load("../../testdata/fixtures/tokenizers/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}
