package kvcache

import "fmt"

// FullError says that the cache has too few free pages for an operation, which
// then changed nothing.
type FullError struct {
	Needed int // pages
	Free   int
}

// Error names both numbers and the remedy.
func (e *FullError) Error() string {
	return fmt.Sprintf("the KV cache is full: %d pages needed, %d free; finish or release sequences, or give the cache more pages",
		e.Needed, e.Free)
}

// Cache is a pool of pages of kernels.BlockTokens slots.
type Cache struct {
	blocks   int
	free     []int32   // a stack: the last freed page is the next taken
	open     int       // sequences not released
	prefixes *prefixes // nil when pages are not kept for reuse
}

// NewReusing makes a pool that keeps full pages of ended sequences while it has
// room, so that sequences which begin alike share them.
func NewReusing(blocks int) *Cache {
	c := New(blocks)
	c.prefixes = newPrefixes()
	return c
}

// New makes a pool of blocks pages.
func New(blocks int) *Cache {
	c := &Cache{blocks: blocks, free: make([]int32, blocks)}
	for i := range c.free {
		c.free[i] = int32(blocks - 1 - i)
	}
	return c
}

// Blocks is the number of pages.
func (c *Cache) Blocks() int { return c.blocks }

// Free is the number of pages that no sequence holds, those kept for reuse included.
func (c *Cache) Free() int { return len(c.free) + c.Kept() }

// Kept is the number of pages that no sequence holds and that are kept for reuse.
func (c *Cache) Kept() int {
	if c.prefixes == nil {
		return 0
	}
	return c.prefixes.count
}

// Open is the number of sequences not yet released. At rest it is 0 and Free is Blocks.
func (c *Cache) Open() int { return c.open }

// NewSequence opens an empty sequence.
func (c *Cache) NewSequence() *Sequence {
	c.open++
	return &Sequence{cache: c}
}

// take moves n pages from the pool onto table.
func (c *Cache) take(table []int32, n int) ([]int32, error) {
	if n > c.Free() {
		return table, &FullError{Needed: n, Free: c.Free()}
	}
	for range n {
		last := len(c.free) - 1
		if last < 0 {
			table = append(table, c.prefixes.evict())
			continue
		}
		table = append(table, c.free[last])
		c.free = c.free[:last]
	}
	return table, nil
}

// give returns pages to the pool, last page first, so that taking them again
// gives the same order.
func (c *Cache) give(pages []int32) {
	for i := len(pages) - 1; i >= 0; i-- {
		c.free = append(c.free, pages[i])
	}
}
