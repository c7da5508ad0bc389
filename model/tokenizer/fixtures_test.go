package tokenizer_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/octet-run/octet/model/tokenizer"
)

const fixtures = "../../testdata/fixtures"

func load(t testing.TB, parts ...string) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.Load(filepath.Join(append([]string{fixtures}, parts...)...))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func readJSON(t testing.TB, into any, parts ...string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(append([]string{fixtures}, parts...)...))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}

type fixtureCase struct {
	Text               string  `json:"text"`
	IDs                []int32 `json:"ids"`
	IDsNoSpecial       []int32 `json:"ids_no_special"`
	IDsOrdinary        []int32 `json:"ids_ordinary"`
	Decoded            string  `json:"decoded"`
	DecodedSkipSpecial string  `json:"decoded_skip_special"`
}

func TestReferenceCasesAreReproduced(t *testing.T) {
	for _, name := range []string{"llama3", "llama2", "kimi"} {
		tok := load(t, "tokenizers", name)
		var file struct {
			Cases []fixtureCase `json:"cases"`
		}
		readJSON(t, &file, "tokenizers", name, "expected.json")
		if len(file.Cases) < 30 {
			t.Fatalf("%s: only %d cases", name, len(file.Cases))
		}
		for _, c := range file.Cases {
			wantIDs(t, name, c.Text, tok.Encode(c.Text, true), c.IDs)
			if name == "kimi" {
				wantIDs(t, name+" ordinary", c.Text, tok.EncodeOrdinary(c.Text), c.IDsOrdinary)
			} else {
				wantIDs(t, name+" bare", c.Text, tok.Encode(c.Text, false), c.IDsNoSpecial)
			}
			wantText(t, name, tok.Decode(c.IDs, false), c.Decoded)
			wantText(t, name+" without special tokens", tok.Decode(c.IDs, true), c.DecodedSkipSpecial)
			wantText(t, name+" streamed", stream(tok, c.IDs, false), c.Decoded)
			wantText(t, name+" streamed without special tokens", stream(tok, c.IDs, true), c.DecodedSkipSpecial)
		}
	}
}

func TestUnfinishedCharactersDecodeToReplacements(t *testing.T) {
	tok := load(t, "tokenizers", "kimi")
	var file struct {
		Prefixes []fixtureCase `json:"prefix_decodes"`
	}
	readJSON(t, &file, "tokenizers", "kimi", "expected.json")
	if len(file.Prefixes) == 0 {
		t.Fatal("no prefixes")
	}
	for _, p := range file.Prefixes {
		wantText(t, "prefix", tok.Decode(p.IDs, false), p.Decoded)
	}
}

func TestTrainedPairPromptsAreReproduced(t *testing.T) {
	tok := load(t, "eagle3-llama-pair", "target")
	var file struct {
		Cases []struct {
			PromptText string  `json:"prompt_text"`
			PromptIDs  []int32 `json:"prompt_ids"`
			Greedy     []int32 `json:"greedy_96"`
		} `json:"cases"`
	}
	readJSON(t, &file, "eagle3-llama-pair", "expected.json")
	if len(file.Cases) == 0 {
		t.Fatal("no cases")
	}
	for _, c := range file.Cases {
		wantIDs(t, "pair", c.PromptText, tok.Encode(c.PromptText, true), c.PromptIDs)
		wantText(t, "pair", tok.Decode(c.PromptIDs, true), c.PromptText)
		wantText(t, "pair stream", stream(tok, c.Greedy, true), tok.Decode(c.Greedy, true))
	}
	if bos, ok := tok.BOS(); !ok || bos != 0 {
		t.Errorf("begin token %d, %v", bos, ok)
	}
	if eos := tok.EOS(); !slices.Equal(eos, []int32{1}) {
		t.Errorf("end tokens %v", eos)
	}
	if got := tok.SpecialTokens(); !slices.Equal(got, []int32{0, 1, 2}) {
		t.Errorf("special tokens %v", got)
	}
	if tok.VocabSize() != 2048 {
		t.Errorf("vocabulary %d", tok.VocabSize())
	}
}

func stream(tok *tokenizer.Tokenizer, ids []int32, skipSpecial bool) string {
	s := tok.NewStream(skipSpecial)
	var text string
	for _, id := range ids {
		text += s.Push(id)
	}
	return text + s.Flush()
}

func wantIDs(t *testing.T, what, text string, got, want []int32) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q\n got %v\nwant %v", what, text, got, want)
	}
}

func wantText(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}
