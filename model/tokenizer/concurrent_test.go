package tokenizer

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

func TestTokenizersAreSafeForConcurrentUse(t *testing.T) {
	for _, name := range []string{"llama3", "llama2", "kimi"} {
		tok, reference := mustLoadFixture(t, name), mustLoadFixture(t, name)
		rng := rand.New(rand.NewPCG(8, 8))
		texts := make([]string, 50)
		want := make([][]int32, len(texts))
		for i := range texts {
			texts[i] = randomText(rng, 40)
			want[i] = reference.Encode(texts[i], true)
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for i, text := range texts {
					ids := tok.Encode(text, true)
					if !slices.Equal(ids, want[i]) {
						t.Errorf("%s: %q\n got %v\nwant %v", name, text, ids, want[i])
					}
					if tok.Decode(ids, true) != reference.Decode(ids, true) {
						t.Errorf("%s: %q decodes to something else", name, text)
					}
				}
			})
		}
		wg.Wait()
	}
}

// TestCachedPiecesDoNotMixUp fills the cache many times over with pieces that share slots.
func TestCachedPiecesDoNotMixUp(t *testing.T) {
	tok := mustLoadFixture(t, "llama3")
	rng := rand.New(rand.NewPCG(9, 9))
	for range 3 * cacheSlots {
		b := make([]byte, 1+rng.IntN(maxCachedPiece))
		for i := range b {
			b[i] = "abcdefgh"[rng.IntN(8)]
		}
		text := string(b)
		if tok.model.wholePiece {
			if _, ok := tok.model.tokens[text]; ok {
				continue
			}
		}
		if got, want := tok.model.encode(nil, text), tok.model.merge(nil, text); !slices.Equal(got, want) {
			t.Fatalf("%q: got %v, want %v", text, got, want)
		}
	}
}
