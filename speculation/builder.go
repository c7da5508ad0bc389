package speculation

import (
	"fmt"
	"math"
	"slices"
)

// Candidate is one token that a drafter proposes after a row, with its
// log-probability there.
type Candidate struct {
	Token   int32 // target id
	Logprob float32
}

// BeamRow is a row that the drafter runs in the next expansion. The rows that a
// round has run are numbered in the order they were handed out, over all levels.
type BeamRow struct {
	Token int32
	// Parent is the number of the row whose output proposed Token and whose
	// feature the row takes; -1 is the row of level 0.
	Parent int
	// Ancestors is the numbers of the rows that the row sees besides the
	// committed ones, itself included.
	Ancestors uint64
	// Depth is 1 for the row that consumes the first drafted token. With n rows
	// of target features at positions 0..n-1, the row is at position n+Depth-1.
	Depth int
}

// Builder grows one EAGLE-3 tree. Expand takes the candidates of level 0, then
// of each row of Beam, until Done; Tree keeps the best.
type Builder struct {
	shape Shape
	root  int32
	level int // levels expanded so far
	rows  int // rows handed out before the current beam
	pool  []poolEntry
	beam  []int // pool indices of the beam, best first
	lines []BeamRow
}

// poolEntry is a candidate in pool order: level 0 is 0..k-1, level i starts at
// k + (i-1)k².
type poolEntry struct {
	token  int32
	parent int // pool index, -1 for the root
	score  float64
	row    int    // the number of the row that consumes it, -1 while it is in no beam
	seen   uint64 // the rows on its path
	depth  int
}

// NewBuilder starts the tree under root. The shape must not be zero.
func NewBuilder(shape Shape, root int32) (*Builder, error) {
	if err := shape.Validate(); err != nil {
		return nil, err
	}
	if shape.IsZero() {
		return nil, &ShapeError{Shape: shape, Reason: "the zero shape has no draft to build"}
	}
	return &Builder{shape: shape, root: root, pool: make([]poolEntry, 0, shape.poolSize())}, nil
}

// Done says that every level has its candidates.
func (b *Builder) Done() bool { return b.level == b.shape.Steps }

// Beam is the rows to run for the next level, best first. It is empty before
// level 0 (which comes from the last extended row) and when Done.
func (b *Builder) Beam() []BeamRow { return b.lines }

// Expand takes the TopK best candidates of each row, in descending order of
// probability: of the last extended row first, then of the rows of Beam.
func (b *Builder) Expand(rows ...[]Candidate) error {
	if b.Done() {
		return fmt.Errorf("draft tree %v has all of its %d levels", b.shape, b.shape.Steps)
	}
	parents := b.beam
	if b.level == 0 {
		parents = []int{-1}
	}
	if len(rows) != len(parents) {
		return fmt.Errorf("draft tree level %d wants candidates of %d rows, got %d", b.level, len(parents), len(rows))
	}
	first := len(b.pool)
	for i, row := range rows {
		if err := b.addRow(parents[i], row); err != nil {
			b.pool = b.pool[:first]
			return err
		}
	}
	b.rows += len(b.lines)
	b.level++
	b.beam, b.lines = nil, nil
	if !b.Done() {
		b.chooseBeam(first)
	}
	return nil
}

func (b *Builder) addRow(parent int, row []Candidate) error {
	if len(row) != b.shape.TopK {
		return fmt.Errorf("draft tree level %d wants %d candidates a row, got %d", b.level, b.shape.TopK, len(row))
	}
	score, seen := 0.0, uint64(0)
	if parent >= 0 {
		score, seen = b.pool[parent].score, b.pool[parent].seen
	}
	for _, c := range row {
		p := float64(c.Logprob)
		if math.IsNaN(p) || math.IsInf(p, 1) {
			return fmt.Errorf("drafter gave token %d the log-probability %v at level %d", c.Token, c.Logprob, b.level)
		}
		// A probability rounded above one must not lift a child over its parent.
		p = min(p, 0)
		b.pool = append(b.pool, poolEntry{
			token: c.Token, parent: parent, score: score + p, row: -1, seen: seen, depth: b.level + 1,
		})
	}
	return nil
}

// chooseBeam takes the TopK best of the level that starts at first.
func (b *Builder) chooseBeam(first int) {
	level := make([]int, 0, len(b.pool)-first)
	for i := first; i < len(b.pool); i++ {
		level = append(level, i)
	}
	b.beam = b.best(level, b.shape.TopK)
	b.lines = make([]BeamRow, len(b.beam))
	for i, index := range b.beam {
		c := &b.pool[index]
		c.row = b.rows + i
		c.seen |= 1 << c.row
		parent := -1
		if c.parent >= 0 {
			parent = b.pool[c.parent].row
		}
		b.lines[i] = BeamRow{Token: c.token, Parent: parent, Ancestors: c.seen, Depth: c.depth}
	}
}

// best sorts pool indices by descending score, the lower index first on ties,
// and returns the first n.
func (b *Builder) best(indices []int, n int) []int {
	slices.SortFunc(indices, func(x, y int) int {
		switch sx, sy := b.pool[x].score, b.pool[y].score; {
		case sx > sy:
			return -1
		case sx < sy:
			return 1
		}
		return x - y
	})
	return indices[:min(n, len(indices))]
}

// Tree keeps the Nodes-1 best candidates in pool order under the root. Done must hold.
//
// A candidate never scores above its parent and comes after it, so the best are
// closed under taking parents.
func (b *Builder) Tree() *Tree {
	if !b.Done() {
		panic(fmt.Sprintf("speculation: tree %v taken after %d levels", b.shape, b.level))
	}
	all := make([]int, len(b.pool))
	for i := range all {
		all[i] = i
	}
	kept := b.best(all, b.shape.Nodes-1)
	slices.Sort(kept)

	tree := NewTree(b.root)
	node := make(map[int]int, len(kept)+1)
	node[-1] = 0
	for _, index := range kept {
		c := b.pool[index]
		node[index] = tree.Add(node[c.parent], c.token, c.score)
	}
	return tree
}
