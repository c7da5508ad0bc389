package speculation

// maxMatch is the longest suffix that NGram looks up.
const maxMatch = 4

// NGram drafts by prompt lookup: what followed the last occurrence of the
// longest suffix of the sequence, up to four tokens, follows again. Looking up
// and observing take constant time a token.
type NGram struct {
	minMatch int
	tokens   []int32
	// next holds, per suffix length and suffix, where the token after its last
	// occurrence is.
	next [maxMatch + 1]map[[maxMatch]int32]int32
}

// NewNGram returns an empty drafter that wants at least minMatch tokens to match
// (1 to 4; other values are brought into that range).
func NewNGram(minMatch int) *NGram {
	g := &NGram{minMatch: min(max(minMatch, 1), maxMatch)}
	for n := g.minMatch; n <= maxMatch; n++ {
		g.next[n] = make(map[[maxMatch]int32]int32)
	}
	return g
}

// Observe appends the tokens that the sequence now has.
func (g *NGram) Observe(tokens ...int32) {
	for _, token := range tokens {
		end := len(g.tokens)
		for n := g.minMatch; n <= min(maxMatch, end); n++ {
			g.next[n][suffix(g.tokens, n)] = int32(end)
		}
		g.tokens = append(g.tokens, token)
	}
}

// Draft proposes up to steps tokens after the observed ones and root.
func (g *NGram) Draft(root int32, steps int) []int32 {
	end := len(g.tokens)
	g.tokens = append(g.tokens, root)
	defer func() { g.tokens = g.tokens[:end] }()

	for n := min(maxMatch, len(g.tokens)); n >= g.minMatch; n-- {
		key := suffix(g.tokens, n)
		at, ok := g.next[n][key]
		if n <= end && suffix(g.tokens[:end], n) == key {
			at, ok = int32(end), true // the root itself followed the suffix last
		}
		if !ok {
			continue
		}
		// The copy may run into what it has just drafted: a period repeats.
		for i := range steps {
			g.tokens = append(g.tokens, g.tokens[int(at)+i])
		}
		return append([]int32(nil), g.tokens[end+1:]...)
	}
	return nil
}

func suffix(tokens []int32, n int) (key [maxMatch]int32) {
	copy(key[:], tokens[len(tokens)-n:])
	return key
}
