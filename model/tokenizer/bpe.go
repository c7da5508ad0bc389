package tokenizer

import (
	"fmt"
	"math"
	"sync"
	"unicode/utf8"
)

const (
	noToken = -1
	noRank  = math.MaxUint32
)

// joiner knows which neighbouring symbols of a piece may become one.
type joiner interface {
	// join returns the rank of joining l and r, the lower the earlier, and the
	// token it makes; noRank when they cannot be joined.
	join(piece string, l, r *symbol) (rank uint32, into int32)
}

// bpe splits one piece into tokens: first into characters or bytes, then joining the
// neighbours with the lowest rank, the leftmost first among equals, until none is left.
type bpe struct {
	tokens map[string]int32 // by what the token stands for: text, or bytes when byteLevel
	joins  joiner

	// A piece that is a token as a whole is taken at once (ignore_merges, tiktoken).
	wholePiece bool
	// Pieces are bytes, not characters.
	byteLevel bool
	byteIDs   [256]int32 // token of each byte: byteLevel's own or <0xXX>; noToken if absent
	// With byteFallback characters out of the vocabulary become <0xXX> tokens.
	byteFallback bool
	unknown      int32 // token for what is in no other way covered, or noToken: dropped
	fuseUnknown  bool  // a run of unknown characters is one unknown token

	cuts    *cutter // nil: a piece is merged as a whole
	cache   *pieceCache
	scratch sync.Pool // of *merger
}

// encode appends the tokens of a piece.
func (m *bpe) encode(dst []int32, text string) []int32 {
	if text == "" {
		return dst
	}
	if m.wholePiece {
		if id, ok := m.tokens[text]; ok {
			return append(dst, id)
		}
	}
	if m.cuts == nil {
		return m.encodePart(dst, text)
	}
	for i := 0; i < len(text); {
		end := m.cuts.next(text, i)
		dst = m.encodePart(dst, text[i:end])
		i = end
	}
	return dst
}

// encodePart appends the tokens of a part that joins with nothing around it.
func (m *bpe) encodePart(dst []int32, text string) []int32 {
	if len(text) > maxCachedPiece {
		return m.merge(dst, text)
	}
	slot := m.cache.slot(text)
	if e := slot.Load(); e != nil && e.matches(text) {
		return append(dst, e.ids[:e.count]...)
	}
	before := len(dst)
	dst = m.merge(dst, text)
	if e := newCached(text, dst[before:]); e != nil {
		slot.Store(e)
	}
	return dst
}

func (m *bpe) merge(dst []int32, text string) []int32 {
	w, _ := m.scratch.Get().(*merger)
	if w == nil {
		w = &merger{}
	}
	defer m.scratch.Put(w)
	w.reset(text, m.joins)
	if m.byteLevel {
		m.splitBytes(w, text)
	} else {
		m.splitChars(w, text)
	}
	w.run()
	return w.append(dst)
}

func (m *bpe) splitBytes(w *merger, text string) {
	for i := range len(text) {
		if id := m.byteIDs[text[i]]; id != noToken {
			w.add(id, i, i+1)
		} else {
			m.addUnknown(w, i, i+1)
		}
	}
}

func (m *bpe) splitChars(w *merger, text string) {
	for i := 0; i < len(text); {
		_, size := utf8.DecodeRuneInString(text[i:])
		char := text[i : i+size]
		if id, ok := m.tokens[char]; ok {
			w.add(id, i, i+size)
		} else if m.byteFallback && m.hasBytes(char) {
			for k := range size {
				w.add(m.byteIDs[char[k]], i+k, i+k+1)
			}
		} else {
			m.addUnknown(w, i, i+size)
		}
		i += size
	}
}

func (m *bpe) hasBytes(char string) bool {
	for i := range len(char) {
		if m.byteIDs[char[i]] == noToken {
			return false
		}
	}
	return true
}

func (m *bpe) addUnknown(w *merger, start, end int) {
	if m.unknown == noToken {
		return
	}
	if last := w.last(); m.fuseUnknown && last != nil && last.id == m.unknown && last.end == int32(start) {
		last.end = int32(end)
		return
	}
	w.add(m.unknown, start, end)
}

// pairRank is what a line of a merge list says about two tokens.
type pairRank struct {
	rank uint32
	into int32
}

// mergeList joins by pairs of tokens, in the order of a list (tokenizer.json).
type mergeList map[uint64]pairRank

func pairKey(l, r int32) uint64 { return uint64(uint32(l))<<32 | uint64(uint32(r)) }

func (ml mergeList) join(_ string, l, r *symbol) (uint32, int32) {
	if p, ok := ml[pairKey(l.id, r.id)]; ok {
		return p.rank, p.into
	}
	return noRank, noToken
}

// byteRanks joins whatever two parts make up a token, the token with the lowest id first
// (tiktoken: the id is the rank).
type byteRanks map[string]int32

func (br byteRanks) join(text string, l, r *symbol) (uint32, int32) {
	if id, ok := br[text[l.start:r.end]]; ok {
		return uint32(id), id
	}
	return noRank, noToken
}

// byteToken is the name of a byte in vocabularies with byte fallback.
func byteToken(b byte) string { return fmt.Sprintf("<0x%02X>", b) }
