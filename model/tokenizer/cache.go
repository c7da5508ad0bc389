package tokenizer

import (
	"hash/maphash"
	"sync/atomic"
)

const (
	cacheSlots      = 1 << 14
	maxCachedPiece  = 24 // bytes
	maxCachedTokens = 8
)

// pieceCache remembers the tokens of short pieces. It has a fixed number of slots, the newest
// piece wins, and readers take no lock: an entry never changes once it is stored.
type pieceCache struct {
	seed  maphash.Seed
	slots [cacheSlots]atomic.Pointer[cachedPiece]
}

// cachedPiece is one allocation of 64 bytes.
type cachedPiece struct {
	length, count uint8
	text          [maxCachedPiece]byte
	ids           [maxCachedTokens]int32
}

func newPieceCache() *pieceCache { return &pieceCache{seed: maphash.MakeSeed()} }

func (c *pieceCache) slot(text string) *atomic.Pointer[cachedPiece] {
	return &c.slots[maphash.String(c.seed, text)%cacheSlots]
}

// newCached returns nil when the piece has more tokens than an entry holds.
func newCached(text string, ids []int32) *cachedPiece {
	if len(ids) > maxCachedTokens {
		return nil
	}
	e := &cachedPiece{length: uint8(len(text)), count: uint8(len(ids))}
	copy(e.text[:], text)
	copy(e.ids[:], ids)
	return e
}

func (e *cachedPiece) matches(text string) bool {
	return int(e.length) == len(text) && string(e.text[:e.length]) == text
}
