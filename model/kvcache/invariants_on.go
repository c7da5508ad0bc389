//go:build invariants

package kvcache

import "fmt"

// check counts every page: each is free, kept, or in use, and no page is twice
// among the free and the kept.
func (c *Cache) check() {
	seen := make([]bool, c.blocks)
	mark := func(block int32) {
		if seen[block] {
			panic(fmt.Sprintf("kvcache: page %d is free twice", block))
		}
		seen[block] = true
	}
	for _, b := range c.free {
		mark(b)
	}
	if c.prefixes == nil {
		return
	}
	kept := 0
	for n := c.prefixes.unused.newer; n != &c.prefixes.unused; n = n.newer {
		mark(n.block)
		kept++
		if n.users != 0 || n.parent.children[n.key] != n {
			panic(fmt.Sprintf("kvcache: page %d is kept and used by %d", n.block, n.users))
		}
	}
	if kept != c.prefixes.count {
		panic(fmt.Sprintf("kvcache: %d pages are kept, %d counted", kept, c.prefixes.count))
	}
	if first := c.prefixes.unused.newer; kept > 0 && len(first.children) > 0 {
		panic(fmt.Sprintf("kvcache: page %d would be evicted before its children", first.block))
	}
}
