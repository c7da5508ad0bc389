package tokenizer

import (
	"slices"
	"unicode/utf8"
)

const cutterBits = 1 << 19

// cutter finds where a text can be cut without changing its tokens. Character models take a whole text as one
// piece; but a join across two characters makes a token in which they are neighbours, so between characters that are
// neighbours in no token nothing ever joins, and both sides can be encoded, and cached, on their own.
type cutter struct {
	neighbours [cutterBits / 64]uint64 // a bit per hash of a pair; a collision only loses a cut
	known      map[string]int32        // the vocabulary
	keepUnks   bool                    // unknown characters next to each other become one token
}

// newCutter returns nil when tokens may join in ways that their texts do not show: the bytes of
// characters, the unknown token, or what stood around a character that is dropped.
func newCutter(m *bpe, merges mergeTexts) *cutter {
	if m.unknown == noToken && !(m.byteFallback && !slices.Contains(m.byteIDs[:], noToken)) {
		return nil
	}
	hidden := map[int32]bool{m.unknown: true} // tokens that stand for other characters than their own
	for _, id := range m.byteIDs {
		hidden[id] = m.byteFallback
	}
	c := &cutter{known: m.tokens, keepUnks: m.fuseUnknown && m.unknown != noToken}
	for _, pair := range merges {
		if hidden[m.tokens[pair[0]]] || hidden[m.tokens[pair[1]]] {
			return nil
		}
		// The pairs inside the two parts are those of their own merges.
		left, _ := utf8.DecodeLastRuneInString(pair[0])
		right, _ := utf8.DecodeRuneInString(pair[1])
		word, bit := pairBit(left, right)
		c.neighbours[word] |= bit
	}
	return c
}

func pairBit(l, r rune) (word int, bit uint64) {
	h := (uint32(l)*0x9E3779B1 ^ uint32(r)*0x85EBCA77) % cutterBits
	return int(h / 64), 1 << (h % 64)
}

// next returns the end of the part of s that starts at byte i.
func (c *cutter) next(s string, i int) int {
	last, size := utf8.DecodeRuneInString(s[i:])
	for j := i + size; j < len(s); {
		r, size := utf8.DecodeRuneInString(s[j:])
		word, bit := pairBit(last, r)
		if c.neighbours[word]&bit == 0 && !(c.keepUnks && c.isUnknown(last) && c.isUnknown(r)) {
			return j
		}
		last = r
		j += size
	}
	return len(s)
}

func (c *cutter) isUnknown(r rune) bool {
	_, ok := c.known[string(r)]
	return !ok
}
