package speculation

import (
	"fmt"
	"math/bits"
)

// MaxNodes is the most nodes that a tree can have, its root included: a set of
// nodes is one 64-bit word.
const MaxNodes = 64

// Tree is the drafted candidates of one sequence. Node 0 is the root, the last
// emitted token, which has no place in the cache yet. Parents come before
// children, and the children of one node have different tokens.
type Tree struct {
	Tokens  []int32
	Parents []int32 // -1 for the root
	Depths  []int32 // 0 for the root: a node's position is the root's plus its depth
	// Scores are cumulative log-probabilities under the drafter; 0 for the root.
	Scores []float64
	// Ancestors has, for each node, the nodes on its path from the root, itself
	// included: bit j stands for node j.
	Ancestors []uint64
}

// NewTree returns a tree that has only its root.
func NewTree(root int32) *Tree {
	return &Tree{
		Tokens:    []int32{root},
		Parents:   []int32{-1},
		Depths:    []int32{0},
		Scores:    []float64{0},
		Ancestors: []uint64{1},
	}
}

// NewChain returns the tree in which each token has the next as its one child.
func NewChain(root int32, drafts []int32) *Tree {
	t := NewTree(root)
	for i, token := range drafts {
		t.Add(i, token, 0)
	}
	return t
}

// Add appends a child of parent and returns its node. The tree must have room.
func (t *Tree) Add(parent int, token int32, score float64) int {
	node := len(t.Tokens)
	if node >= MaxNodes || parent < 0 || parent >= node {
		panic(fmt.Sprintf("speculation: node %d under parent %d does not fit a tree of at most %d", node, parent, MaxNodes))
	}
	t.Tokens = append(t.Tokens, token)
	t.Parents = append(t.Parents, int32(parent))
	t.Depths = append(t.Depths, t.Depths[parent]+1)
	t.Scores = append(t.Scores, score)
	t.Ancestors = append(t.Ancestors, t.Ancestors[parent]|1<<node)
	return node
}

// Len is the number of nodes, the root included.
func (t *Tree) Len() int { return len(t.Tokens) }

// Child returns the child of parent that carries token, or -1.
func (t *Tree) Child(parent int, token int32) int {
	for node := parent + 1; node < len(t.Tokens); node++ {
		if t.Parents[node] == int32(parent) && t.Tokens[node] == token {
			return node
		}
	}
	return -1
}

// Path returns the nodes from the root to node, both included.
func (t *Tree) Path(node int) []uint8 {
	path := make([]uint8, 0, t.Depths[node]+1)
	for set := t.Ancestors[node]; set != 0; set &= set - 1 {
		path = append(path, uint8(bits.TrailingZeros64(set)))
	}
	return path
}
