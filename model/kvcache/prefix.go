package kvcache

import "github.com/octet-run/octet/kernels"

// page is a full page whose tokens, and all tokens before it, are known: a node
// of a tree in which every path from a root spells a prefix. Pages that no
// sequence holds stay in the tree until the pool needs them, least recently used
// first. A sequence that holds a page holds its ancestors and lets go of them
// later, so a page is always older than its parent and eviction takes leaves.
type page struct {
	parent   *page
	key      pageTokens
	block    int32
	users    int
	children map[pageTokens]*page

	older, newer *page // neighbours among unused pages, nil when in use
}

type pageTokens [kernels.BlockTokens]int32

// prefixes is the tree of known pages.
type prefixes struct {
	roots  map[int32]*page // by what precedes the first token
	unused page            // ring: newer is the least recently used page
	count  int             // unused pages
}

func newPrefixes() *prefixes {
	p := &prefixes{roots: map[int32]*page{}}
	p.unused.older, p.unused.newer = &p.unused, &p.unused
	return p
}

func (p *prefixes) root(salt int32) *page {
	r := p.roots[salt]
	if r == nil {
		r = &page{children: map[pageTokens]*page{}}
		p.roots[salt] = r
	}
	return r
}

// hold takes a page into use.
func (p *prefixes) hold(n *page) {
	if n.users == 0 {
		p.unlink(n)
	}
	n.users++
}

// drop ends one use of a page.
func (p *prefixes) drop(n *page) {
	n.users--
	if n.users > 0 {
		return
	}
	last := p.unused.older
	n.older, n.newer = last, &p.unused
	last.newer, p.unused.older = n, n
	p.count++
}

func (p *prefixes) unlink(n *page) {
	n.older.newer, n.newer.older = n.newer, n.older
	n.older, n.newer = nil, nil
	p.count--
}

// evict forgets the least recently used page and returns its block.
func (p *prefixes) evict() int32 {
	n := p.unused.newer
	p.unlink(n)
	delete(n.parent.children, n.key)
	return n.block
}

// publish makes a block known as what follows parent, used once. It returns nil
// when another block is known as that already.
func (p *prefixes) publish(parent *page, key pageTokens, block int32) *page {
	if parent.children[key] != nil {
		return nil
	}
	n := &page{parent: parent, key: key, block: block, users: 1, children: map[pageTokens]*page{}}
	parent.children[key] = n
	return n
}

// Salt says what precedes the sequence's first token, where that matters to what
// the cache holds: a drafter's rows depend on the token before theirs. Sequences
// share pages only under equal salts. It must be set before the first row.
func (s *Sequence) Salt(token int32) {
	if s.committed+s.pending > 0 {
		panic("kvcache: salt after the first row")
	}
	s.salt = token
}

// Match is how many of the tokens that would follow the committed ones Adopt
// would find.
func (s *Sequence) Match(tokens []int32) int {
	n := 0
	for range s.known(tokens) {
		n += kernels.BlockTokens
	}
	return n
}

// Adopt commits positions whose keys and values the cache already has, whole
// pages of them, and returns how many: those tokens need no pass. Rows that
// must yield logits must not be offered.
func (s *Sequence) Adopt(tokens []int32) int {
	n := 0
	for p := range s.known(tokens) {
		s.cache.prefixes.hold(p)
		s.held = append(s.held, p)
		s.blocks = append(s.blocks, p.block)
		s.tokens = append(s.tokens, p.key[:]...)
		n += kernels.BlockTokens
	}
	s.committed += n
	return n
}

// known walks the known pages that follow the committed positions and spell tokens.
func (s *Sequence) known(tokens []int32) func(yield func(*page) bool) {
	return func(yield func(*page) bool) {
		if s.cache.prefixes == nil || s.pending > 0 || s.committed != len(s.held)*kernels.BlockTokens {
			return
		}
		at := s.parent()
		for ; len(tokens) >= kernels.BlockTokens; tokens = tokens[kernels.BlockTokens:] {
			next := at.children[pageTokens(tokens[:kernels.BlockTokens])]
			if next == nil || !yield(next) {
				return
			}
			at = next
		}
	}
}

// parent is the page that the next published or adopted one follows.
func (s *Sequence) parent() *page {
	if len(s.held) == 0 {
		return s.cache.prefixes.root(s.salt)
	}
	return s.held[len(s.held)-1]
}

// publish makes the pages that are full now known to later sequences.
func (s *Sequence) publish() {
	if s.cache.prefixes == nil || s.private {
		return
	}
	for len(s.held) < s.committed/kernels.BlockTokens {
		i := len(s.held)
		key := pageTokens(s.tokens[i*kernels.BlockTokens : (i+1)*kernels.BlockTokens])
		p := s.cache.prefixes.publish(s.parent(), key, s.blocks[i])
		if p == nil {
			// Another sequence was first. Ours stays private, and so must all after it.
			s.private = true
			return
		}
		s.held = append(s.held, p)
	}
}

// withdraw makes the last held page private again when position n lies inside
// it, and returns where the sequence may go on: n, or the start of the page when
// others read it too.
func (s *Sequence) withdraw(n int) int {
	last := len(s.held) - 1
	if n%kernels.BlockTokens == 0 || last < n/kernels.BlockTokens {
		return n
	}
	p := s.held[last]
	if p.users > 1 || len(p.children) > 0 {
		return last * kernels.BlockTokens
	}
	delete(p.parent.children, p.key)
	s.held = s.held[:last]
	return n
}
