package speculation

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

// recordedTree is the tree_round of testdata/fixtures/eagle3-llama-pair/expected.json.
type recordedTree struct {
	TopK       int       `json:"topk"`
	Steps      int       `json:"num_steps"`
	Nodes      int       `json:"num_draft_tokens"`
	Tokens     []int32   `json:"tokens"`
	Parents    []int32   `json:"parents"`
	Depths     []int32   `json:"depths"`
	Positions  []int32   `json:"positions"`
	Scores     []float64 `json:"scores"`
	Candidates struct {
		Tokens   []int32   `json:"tokens"`
		Parents  []int     `json:"parents"`
		Scores   []float64 `json:"scores"`
		Selected []int     `json:"selected"`
		Beams    [][]int   `json:"beams_per_step"`
	} `json:"candidates"`
}

func readRecordedTree(t *testing.T) recordedTree {
	t.Helper()
	data, err := os.ReadFile("../testdata/fixtures/eagle3-llama-pair/expected.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []struct {
			Tree *recordedTree `json:"tree_round"`
		}
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	return *file.Cases[0].Tree
}

func TestBuilderReproducesTheRecordedTree(t *testing.T) {
	want := readRecordedTree(t)
	k := want.TopK
	pool := want.Candidates
	// row is the k candidates at pool index first, as the drafter gave them.
	row := func(first int) []Candidate {
		list := make([]Candidate, k)
		for i := range list {
			parent, p := pool.Parents[first+i], pool.Scores[first+i]
			if parent >= 0 {
				p /= pool.Scores[parent]
			}
			list[i] = Candidate{Token: pool.Tokens[first+i], Logprob: float32(math.Log(p))}
		}
		return list
	}
	b, err := NewBuilder(Shape{TopK: k, Steps: want.Steps, Nodes: want.Nodes}, want.Tokens[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Expand(row(0)); err != nil {
		t.Fatal(err)
	}
	for level := 1; level < want.Steps; level++ {
		if !slices.Equal(b.beam, want.Candidates.Beams[level-1]) {
			t.Fatalf("beam into level %d: pool indices %v, recorded %v", level, b.beam, want.Candidates.Beams[level-1])
		}
		var rows [][]Candidate
		for i := range b.Beam() {
			rows = append(rows, row(k+(level-1)*k*k+i*k))
		}
		if err := b.Expand(rows...); err != nil {
			t.Fatal(err)
		}
	}
	tree := b.Tree()
	if !slices.Equal(tree.Tokens, want.Tokens) || !slices.Equal(tree.Parents, want.Parents) || !slices.Equal(tree.Depths, want.Depths) {
		t.Errorf("tree:\n tokens %v\n parents %v\n depths %v\nrecorded:\n tokens %v\n parents %v\n depths %v",
			tree.Tokens, tree.Parents, tree.Depths, want.Tokens, want.Parents, want.Depths)
	}
	for node, score := range tree.Scores {
		if got := math.Exp(score); math.Abs(got-want.Scores[node]) > 1e-3*want.Scores[node] {
			t.Errorf("score of node %d is %g, recorded %g", node, got, want.Scores[node])
		}
		if position := want.Positions[0] + tree.Depths[node]; position != want.Positions[node] {
			t.Errorf("position of node %d is %d, recorded %d", node, position, want.Positions[node])
		}
	}
}

func TestBuilderRefusesShapesThatCannotBeFilled(t *testing.T) {
	for _, c := range []struct {
		shape Shape
		ok    bool
	}{
		{Shape{4, 5, 16}, true},
		{Shape{1, 5, 6}, true},
		{Shape{1, 5, 5}, false},
		{Shape{1, 5, 7}, false},
		{Shape{2, 2, 7}, true},  // 1 + 2 + 4
		{Shape{2, 2, 8}, false}, // one more than there are
		{Shape{8, 1, 9}, true},
		{Shape{8, 1, 10}, false},
		{Shape{4, 5, 65}, false},
		{Shape{4, 5, 1}, false},
		{Shape{0, 5, 6}, false},
		{Shape{10, 9, 60}, false}, // 80 scratch rows
		{Shape{}, false},
	} {
		_, err := NewBuilder(c.shape, 0)
		var shapeError *ShapeError
		if (err == nil) != c.ok || err != nil && !errors.As(err, &shapeError) {
			t.Errorf("NewBuilder(%v): %v, want ok %v", c.shape, err, c.ok)
		}
	}
}

func TestBuilderRefusesRowsThatDoNotFit(t *testing.T) {
	two := []Candidate{{1, -1}, {2, -2}}
	b, err := NewBuilder(Shape{2, 2, 5}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, rows := range map[string][][]Candidate{
		"no row":         {},
		"two rows":       {two, two},
		"one candidate":  {two[:1]},
		"NaN":            {{{1, -1}, {2, float32(math.NaN())}}},
		"plus infinity":  {{{1, float32(math.Inf(1))}, {2, -1}}},
		"three of level": {{{1, -1}, {2, -1}, {3, -1}}},
	} {
		if err := b.Expand(rows...); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := b.Expand(two); err != nil {
		t.Fatalf("a refused call changed the builder: %v", err)
	}
	if err := b.Expand(two, two); err != nil || !b.Done() {
		t.Fatalf("second level: %v, done %v", err, b.Done())
	}
	if err := b.Expand(two, two); err == nil {
		t.Error("a level beyond the last was accepted")
	}
}

// oracle builds the tree by the definition: the whole candidate list with
// products of probabilities, then repeated selection of the best.
func oracle(shape Shape, root int32, row func(path []int32) []Candidate) *Tree {
	type candidate struct {
		path   []int32
		parent int
		score  float64
	}
	var pool []candidate
	best := func(from int, n int) []int {
		var chosen []int
		for range n {
			top := -1
			for i := from; i < len(pool); i++ {
				if !slices.Contains(chosen, i) && (top < 0 || pool[i].score > pool[top].score) {
					top = i
				}
			}
			if top < 0 {
				break
			}
			chosen = append(chosen, top)
		}
		return chosen
	}
	for level := range shape.Steps {
		parents := []int{-1}
		if level > 0 {
			first := len(pool) - shape.TopK
			if level > 1 {
				first = len(pool) - shape.TopK*shape.TopK
			}
			parents = best(first, shape.TopK)
		}
		for _, parent := range parents {
			var path []int32
			score := 0.0
			if parent >= 0 {
				path, score = pool[parent].path, pool[parent].score
			}
			for _, c := range row(path) {
				pool = append(pool, candidate{append(slices.Clone(path), c.Token), parent, score + float64(c.Logprob)})
			}
		}
	}
	kept := best(0, shape.Nodes-1)
	slices.Sort(kept)
	tree := NewTree(root)
	for _, i := range kept {
		parent := 0
		if pool[i].parent >= 0 {
			parent = 1 + slices.Index(kept, pool[i].parent)
		}
		tree.Add(parent, pool[i].path[len(pool[i].path)-1], pool[i].score)
	}
	return tree
}

func TestBuilderEqualsTheOracle(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for trial := range 400 {
		shape := Shape{TopK: 1 + rng.IntN(5), Steps: 1 + rng.IntN(5)}
		most := min(MaxNodes, 1+shape.poolSize())
		shape.Nodes = 2 + rng.IntN(most-1)
		if shape.TopK == 1 {
			shape.Nodes = shape.Steps + 1
		}
		// Coarse log-probabilities, zero included, make ties the rule.
		coarse := rng.IntN(2) == 0
		rows := map[string][]Candidate{}
		row := func(path []int32) []Candidate {
			key := string(mustJSON(path))
			if list, ok := rows[key]; ok {
				return list
			}
			list := make([]Candidate, shape.TopK)
			for i := range list {
				p := -rng.ExpFloat64()
				if coarse {
					p = -float64(rng.IntN(3))
				}
				list[i] = Candidate{Token: int32(i), Logprob: float32(p)}
			}
			slices.SortStableFunc(list, func(a, b Candidate) int {
				switch {
				case a.Logprob > b.Logprob:
					return -1
				case a.Logprob < b.Logprob:
					return 1
				}
				return 0
			})
			rows[key] = list
			return list
		}
		b, err := NewBuilder(shape, 7)
		if err != nil {
			t.Fatal(err)
		}
		var paths [][]int32 // of every row handed out
		level := [][]Candidate{row(nil)}
		for {
			if err := b.Expand(level...); err != nil {
				t.Fatal(err)
			}
			if b.Done() {
				break
			}
			level = nil
			for _, line := range b.Beam() {
				var path []int32
				if line.Parent >= 0 {
					path = slices.Clone(paths[line.Parent])
				}
				path = append(path, line.Token)
				if len(path) != line.Depth {
					t.Fatalf("row of path %v says depth %d", path, line.Depth)
				}
				paths = append(paths, path)
				level = append(level, row(path))
			}
			for _, line := range b.Beam() {
				checkAncestors(t, paths, line)
			}
		}
		got, want := b.Tree(), oracle(shape, 7, row)
		if !slices.Equal(got.Tokens, want.Tokens) || !slices.Equal(got.Parents, want.Parents) {
			t.Fatalf("trial %d, %v: tokens %v parents %v, oracle %v %v", trial, shape, got.Tokens, got.Parents, want.Tokens, want.Parents)
		}
		checkTree(t, got)
	}
}

// checkAncestors compares a row's set with the prefixes of its path.
func checkAncestors(t *testing.T, paths [][]int32, line BeamRow) {
	t.Helper()
	var own []int32
	for i := range paths {
		if line.Ancestors>>i&1 == 1 {
			own = paths[i]
		}
	}
	if len(own) != line.Depth {
		t.Fatalf("row of depth %d does not see itself last", line.Depth)
	}
	for i, path := range paths {
		isAncestor := len(path) <= len(own) && slices.Equal(path, own[:len(path)])
		if isAncestor != (line.Ancestors>>i&1 == 1) {
			t.Fatalf("row %v sees row %v: %v", own, path, !isAncestor)
		}
	}
}

func checkTree(t *testing.T, tree *Tree) {
	t.Helper()
	for node := 1; node < tree.Len(); node++ {
		parent := tree.Parents[node]
		if parent < 0 || int(parent) >= node {
			t.Fatalf("parent of node %d is %d", node, parent)
		}
		if tree.Depths[node] != tree.Depths[parent]+1 || tree.Ancestors[node] != tree.Ancestors[parent]|1<<node {
			t.Fatalf("node %d: depth %d, ancestors %b under depth %d, ancestors %b",
				node, tree.Depths[node], tree.Ancestors[node], tree.Depths[parent], tree.Ancestors[parent])
		}
		path := tree.Path(node)
		if len(path) != int(tree.Depths[node])+1 || path[0] != 0 || int(path[len(path)-1]) != node {
			t.Fatalf("path of node %d is %v", node, path)
		}
	}
}

func mustJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

func TestChainHasOneChildEach(t *testing.T) {
	tree := NewChain(9, []int32{4, 5, 6})
	checkTree(t, tree)
	if tree.Len() != 4 || tree.Child(0, 4) != 1 || tree.Child(1, 5) != 2 || tree.Child(1, 6) != -1 {
		t.Errorf("chain is %+v", tree)
	}
}

func TestLimitedShapesCanBeFilled(t *testing.T) {
	for _, shape := range []Shape{{}, {1, 5, 6}, {4, 5, 16}, {8, 3, 60}, {2, 4, 15}} {
		for steps := range 7 {
			limited := shape.Limit(steps)
			if err := limited.Validate(); err != nil || limited.Steps > steps {
				t.Errorf("%v limited to %d steps is %v: %v", shape, steps, limited, err)
			}
			if steps >= shape.Steps && limited != shape {
				t.Errorf("%v limited to %d steps became %v", shape, steps, limited)
			}
		}
	}
}
