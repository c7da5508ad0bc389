package speculation

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
)

// toyModel is a language model over a small vocabulary: fixed random logits for
// every context.
type toyModel struct {
	vocab int
	seed  uint64
}

func (m toyModel) logits(context []int32) []float32 {
	h := fnv.New64a()
	for _, token := range context {
		h.Write([]byte{byte(token), byte(token >> 8)})
	}
	rng := rand.New(rand.NewPCG(m.seed, h.Sum64()))
	row := make([]float32, m.vocab)
	for i := range row {
		row[i] = float32(rng.NormFloat64() * 1.5)
	}
	return row
}

// rows answers a verify pass over tree after context.
func (m toyModel) rows(context []int32, tree *Tree) func(int) []float32 {
	return func(node int) []float32 {
		full := slices.Clone(context)
		for _, n := range tree.Path(node) {
			full = append(full, tree.Tokens[n])
		}
		return m.logits(full)
	}
}

// randomTree has up to nodes nodes with random parents and distinct siblings.
func randomTree(rng *rand.Rand, root int32, nodes, vocab int) *Tree {
	tree := NewTree(root)
	for tree.Len() < nodes {
		parent, token := rng.IntN(tree.Len()), int32(rng.IntN(vocab))
		if tree.Child(parent, token) < 0 {
			tree.Add(parent, token, 0)
		}
	}
	return tree
}

// generate runs prompt through First and then rounds of Verify with the trees
// that draft proposes (nil: only the root) until n tokens are there.
func generate(m toyModel, p Params, prompt []int32, n int, draft func(context []int32, root int32) *Tree) ([]Token, error) {
	p.PromptTokens = int32(len(prompt))
	s, err := NewSampler(p, m.vocab, new(Workspace))
	if err != nil {
		return nil, err
	}
	s.Observe(prompt...)
	context := slices.Clone(prompt)
	first, err := s.First(m.logits(context))
	if err != nil {
		return nil, err
	}
	out := []Token{first}
	for len(out) < n {
		root := out[len(out)-1].ID
		tree := NewTree(root)
		if draft != nil {
			tree = draft(context, root)
		}
		verdict, err := s.Verify(tree, m.rows(context, tree))
		if err != nil {
			return nil, err
		}
		for _, node := range verdict.Path {
			s.Observe(tree.Tokens[node])
			context = append(context, tree.Tokens[node])
		}
		out = append(out, verdict.Tokens...)
	}
	return out[:n], nil
}

func ids(tokens []Token) []int32 {
	list := make([]int32, len(tokens))
	for i, token := range tokens {
		list[i] = token.ID
	}
	return list
}

// processedOracle is the distribution that p leaves of logits, by the definition:
// everything sorted, nothing clever.
func processedOracle(p Params, prompt, output []int32, logits []float32) []float64 {
	x := make([]float64, len(logits))
	for token := range x {
		x[token] = float64(logits[token])
		inPrompt, outputs := slices.Contains(prompt, int32(token)), 0
		for _, o := range output {
			if o == int32(token) {
				outputs++
			}
		}
		if r := float64(p.RepetitionPenalty); r != 0 && (inPrompt || outputs > 0) {
			if x[token] > 0 {
				x[token] /= r
			} else {
				x[token] *= r
			}
		}
		if outputs > 0 {
			x[token] -= float64(p.FrequencyPenalty)*float64(outputs) + float64(p.PresencePenalty)
		}
		x[token] += float64(p.LogitBias[int32(token)])
	}
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case x[a] > x[b]:
			return -1
		case x[a] < x[b]:
			return 1
		}
		return 0
	})
	if p.Temperature == 0 {
		one := make([]float64, len(x))
		one[order[0]] = 1
		return one
	}
	if k := int(p.TopK); k > 0 && k < len(order) {
		order = order[:k]
	}
	weight := func(token int) float64 { return math.Exp((x[token] - x[order[0]]) / float64(p.Temperature)) }
	total := 0.0
	for _, token := range order {
		total += weight(token)
	}
	if p.TopP > 0 && p.TopP < 1 {
		kept := 0.0
		for i, token := range order {
			kept += weight(token)
			if kept >= float64(p.TopP)*total {
				order = order[:i+1]
				break
			}
		}
	}
	final, total := make([]float64, len(x)), 0.0
	for _, token := range order {
		if w := weight(token); w >= float64(p.MinP) {
			final[token] = w
			total += w
		}
	}
	for token := range final {
		final[token] /= total
	}
	return final
}
