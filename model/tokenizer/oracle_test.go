package tokenizer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
)

// fragments are what the split patterns tell apart, and what lies close to their borders.
var fragments = []string{
	"a", "b", "hello", "World", "ABC", "x", "Z", "ß", "é", "e\u0301", "\u0301", "ſ", "'ſ", "'s", "'S", "'T", "'re", "'Re", "'vE", "'m",
	"'ll", "'LL", "'d", "'", "''", "'x", "K", "ǅ", "ǈ", "ʰ", "ª", "º", "Ω", "ω", "Привет", "мир", "مرحبا", "नमस्ते", "ก็",
	"0", "1", "12", "123", "1234", "½", "²", "Ⅷ", "٣", "一", "二三", "〇", "々", "〆", "ヶ", "〡", "㆒", "⼀", "⺀", "漢字", "かな", "カナ",
	"ー", "龥", "龦", "한국어", "𠀀", "𝔘", "🙂", "👩\u200d👩", "🇩🇪", "\u200b", "\u200d", "\ufeff", "\ufffd", "\ue000", "\U0010fffd",
	" ", "  ", "   ", "\t", "\n", "\r", "\r\n", "\n\n", "\v", "\f", "\u0085", "\u00a0", "\u1680", "\u2009", "\u2028", "\u3000", "\x1c",
	".", ",", "!", "?", "...", "/", "//", "\\", "-", "_", "(", ")", "[", "]", "{", "}", "#", "$", "+", "<", ">", "=", "^", "`", "|", "~",
	"。", "、", "！", "「", "€", "≈", "©", "\x00", "\x7f", "▁",
}

func randomText(rng *rand.Rand, fragmentCount int) string {
	var b strings.Builder
	for range fragmentCount {
		if rng.IntN(12) == 0 {
			r := rune(rng.IntN(0x30000))
			if utf8.ValidRune(r) {
				b.WriteRune(r)
			}
			continue
		}
		b.WriteString(fragments[rng.IntN(len(fragments))])
	}
	return b.String()
}

// TestSplittersAgreeWithBacktrackingEngine compares the hand-written splitters with the patterns
// they stand for. Two things are spelled differently for the engine: case folding
// of the long s, which it lacks, and class intersection, which it writes as subtraction.
func TestSplittersAgreeWithBacktrackingEngine(t *testing.T) {
	cased := func(class string) string { return "[" + class + `\p{Lm}\p{Lo}\p{M}-[\p{Han}]]` }
	up, down := cased(`\p{Lu}\p{Lt}`), cased(`\p{Ll}`)
	kimi := `[\p{Han}]+|` + leadText + up + `*` + down + `+` + contractionText + `?|` + leadText + up + `+` + down + `*` +
		contractionText + `?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|` + spacesText
	patterns := map[string]string{
		"gpt2": patternGPT2, "llama3": patternLlama3, "qwen2": patternQwen2, "qwen3.5": patternQwen35, "tekken": patternTekken,
		"o200k": patternO200k, "three digits": patternThreeDigits, "kana and han": patternKanaHan,
		"deepseek": patternDeepSeekMain, "kimi": kimi,
	}
	classes := newClassTable()
	for name, pattern := range patterns {
		t.Run(name, func(t *testing.T) {
			alternatives, ok := matchersOf(pattern)
			if name == "kimi" {
				alternatives, ok = kimiMatchers(), true
			}
			if !ok {
				t.Fatal("the pattern is not recognised")
			}
			engine := regexp2.MustCompile(strings.ReplaceAll(pattern, "(?i:'s|", "(?i:'s|'ſ|"), regexp2.None)
			sp := &patternSplit{classes: classes, alternatives: alternatives}
			rng := rand.New(rand.NewPCG(1, uint64(len(name))))
			for range 3000 {
				text := randomText(rng, 1+rng.IntN(14))
				want := splitByEngine(t, engine, text)
				var got []string
				sp.split(piece{text: text}, func(p piece) { got = append(got, p.text) })
				if !slices.Equal(got, want) {
					t.Fatalf("%q\n got %q\nwant %q", text, got, want)
				}
			}
		})
	}
}

// splitByEngine returns the matches and the gaps between them.
func splitByEngine(t *testing.T, engine *regexp2.Regexp, text string) []string {
	t.Helper()
	runes := []rune(text)
	var parts []string
	done := 0
	m, err := engine.FindRunesMatch(runes)
	for ; m != nil && err == nil; m, err = engine.FindNextMatch(m) {
		if done < m.Index {
			parts = append(parts, string(runes[done:m.Index]))
		}
		parts = append(parts, m.String())
		done = m.Index + m.Length
	}
	if err != nil {
		t.Fatal(err)
	}
	if done < len(runes) {
		parts = append(parts, string(runes[done:]))
	}
	return parts
}

// naiveMerge is BPE as it is defined: join the leftmost of the pairs with the lowest rank, again and again.
func naiveMerge(symbols []symbol, text string, joins joiner) []int32 {
	for {
		best, into, at := uint32(noRank), int32(noToken), -1
		for i := 0; i+1 < len(symbols); i++ {
			if rank, id := joins.join(text, &symbols[i], &symbols[i+1]); rank < best {
				best, into, at = rank, id, i
			}
		}
		if at < 0 {
			break
		}
		symbols[at].id, symbols[at].end = into, symbols[at+1].end
		symbols = slices.Delete(symbols, at+1, at+2)
	}
	ids := make([]int32, len(symbols))
	for i := range symbols {
		ids[i] = symbols[i].id
	}
	return ids
}

func TestMergingAgreesWithItsDefinition(t *testing.T) {
	const dir = "../../testdata/fixtures/tokenizers/"
	rng := rand.New(rand.NewPCG(2, 2))
	for _, name := range []string{"llama3", "llama2", "kimi"} {
		tok, err := Load(dir + name)
		if err != nil {
			t.Fatal(err)
		}
		for range 400 {
			text := randomPiece(rng, tok)
			w := &merger{}
			w.reset(text, tok.model.joins)
			if tok.model.byteLevel {
				tok.model.splitBytes(w, text)
			} else {
				tok.model.splitChars(w, text)
			}
			want := naiveMerge(slices.Clone(w.symbols), text, tok.model.joins)
			if len(w.symbols) < 2 {
				continue
			}
			w.symbols[len(w.symbols)-1].next = none
			for way, run := range []func(*merger){(*merger).run, (*merger).runScan, (*merger).runHeap} {
				v := *w
				v.symbols = slices.Clone(w.symbols)
				run(&v)
				if got := v.append(nil); !slices.Equal(got, want) {
					t.Fatalf("%s, way %d: %q\n got %v\nwant %v", name, way, text, got, want)
				}
			}
		}
	}
}

// randomPiece is text that merges a lot: parts of the vocabulary, with noise.
func randomPiece(rng *rand.Rand, tok *Tokenizer) string {
	var b strings.Builder
	for range 1 + rng.IntN(60) {
		switch rng.IntN(6) {
		case 0:
			b.WriteString(randomText(rng, 1))
		case 1:
			b.WriteString(strings.Repeat(" ", rng.IntN(9)))
		default:
			b.WriteString(tok.decoder.feed[rng.IntN(len(tok.vocabulary))])
		}
	}
	return validText(b.String())
}

func TestCuttingDoesNotChangeTokens(t *testing.T) {
	tok := mustLoadFixture(t, "llama2")
	rng := rand.New(rand.NewPCG(7, 7))
	cuts := 0
	for _, variant := range []struct{ byteFallback, fuseUnknown bool }{{true, true}, {false, false}, {false, true}} {
		m := &bpe{
			tokens: tok.model.tokens, joins: tok.model.joins, byteIDs: tok.model.byteIDs, unknown: tok.model.unknown,
			byteFallback: variant.byteFallback, fuseUnknown: variant.fuseUnknown, cache: newPieceCache(),
		}
		m.cuts = &cutter{neighbours: tok.model.cuts.neighbours, known: m.tokens, keepUnks: m.fuseUnknown}
		for range 500 {
			text := tok.normalize(randomPiece(rng, tok))
			want := m.merge(nil, text)
			if got := m.encode(nil, text); !slices.Equal(got, want) {
				t.Fatalf("%q\n got %v\nwant %v", text, got, want)
			}
			if text != "" && m.cuts.next(text, 0) < len(text) {
				cuts++
			}
		}
	}
	if cuts == 0 {
		t.Error("nothing was cut")
	}
}

func TestBytesThatJoinForbidCutting(t *testing.T) {
	tok, err := parseTokenizerJSON([]byte(`{"model": {"type": "BPE", "byte_fallback": true, "merges": [["<0xC3>", "<0xA9>"]],
		"vocab": {"<0xC3>": 0, "<0xA9>": 1, "<0xC3><0xA9>": 2}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if tok.model.cuts != nil {
		t.Error("cuts where bytes join")
	}
	if ids := tok.Encode("é", false); !slices.Equal(ids, []int32{2}) {
		t.Errorf("got %v", ids)
	}
}

// What stands around a character that has no token at all becomes neighbours.
func TestCharactersWithoutATokenForbidCutting(t *testing.T) {
	tok, err := parseTokenizerJSON([]byte(`{"model": {"type": "BPE", "merges": [["a", "b"]], "vocab": {"a": 0, "b": 1, "ab": 2}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if ids := tok.Encode("aéb", false); !slices.Equal(ids, []int32{2}) {
		t.Errorf("got %v", ids)
	}
}

func TestLongPiecesMergeLikeShortOnes(t *testing.T) {
	tok, err := Load("../../testdata/fixtures/tokenizers/llama3")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{scanSymbols - 1, scanSymbols, scanSymbols + 1, 1000} {
		text := strings.Repeat("internationalisation", n/20+1)[:n]
		w := &merger{}
		w.reset(text, tok.model.joins)
		tok.model.splitBytes(w, text)
		want := naiveMerge(slices.Clone(w.symbols), text, tok.model.joins)
		if got := tok.model.merge(nil, text); !slices.Equal(got, want) {
			t.Errorf("%d bytes:\n got %v\nwant %v", n, got, want)
		}
	}
}

func TestClassTableIsTheUnicodeTables(t *testing.T) {
	table := newClassTable()
	for r := rune(0); r <= utf8.MaxRune; r += 1 + r/4096 {
		if got, want := table.of(r), classOf(r); got != want {
			t.Fatalf("%U: %b, want %b", r, got, want)
		}
	}
}

// naiveChunks is Kimi's cutting as its own code does it: first every 400,000 characters, then runs.
func naiveChunks(text string) []string {
	var chunks []string
	runes := []rune(text)
	for len(runes) > 0 {
		n := min(len(runes), maxTiktokenChunk)
		window := runes[:n]
		runes = runes[n:]
		start, run, space := 0, 0, isPythonSpace(window[0])
		for i, r := range window {
			if isPythonSpace(r) != space {
				run, space = 1, !space
				continue
			}
			if run++; run > maxTiktokenRun {
				chunks = append(chunks, string(window[start:i]))
				start, run = i, 1
			}
		}
		chunks = append(chunks, string(window[start:]))
	}
	return chunks
}

func TestLongTextsAreCutAsKimiDoes(t *testing.T) {
	long := func(s string, n int) string { return strings.Repeat(s, n) }
	for i, text := range []string{
		"short", long("x", maxTiktokenRun), long("x", maxTiktokenRun+1), long("é", 3*maxTiktokenRun+5) + " " + long(" ", 2*maxTiktokenRun),
		long("ab c\n", 90_000), long("你好 ", 150_000), long("y", maxTiktokenChunk) + "z z",
		long("word ", 79_998) + long("q", 30_000) + "\x1c\x1d end",
	} {
		var got []string
		chunkTiktoken(text, func(s string) { got = append(got, s) })
		if want := naiveChunks(text); !slices.Equal(got, want) {
			t.Errorf("case %d: %v, want %v", i, lengths(got), lengths(want))
		}
	}
}

func lengths(parts []string) string {
	var b strings.Builder
	for _, p := range parts {
		fmt.Fprintf(&b, "%d ", len(p))
	}
	return b.String()
}
