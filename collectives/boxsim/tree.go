package boxsim

// Draft is what is known of a drafter.
type Draft struct {
	// Acceptance is the chance that the first choice at depth 1, 2, ... is accepted
	// once its parent was. The last value holds for deeper ones.
	Acceptance []float64
	// Sibling is the chance that a further choice is right when those before it are
	// wrong.
	Sibling float64
	StepUS  float64 // one step of the drafter
}

// Tree is a shape of drafted tokens.
type Tree struct {
	TopK   int `json:"topk"`   // children of a node, at most; 1 is a chain
	Steps  int `json:"steps"`  // levels
	Tokens int `json:"tokens"` // nodes, the root included
}

func (d Draft) at(depth int) float64 {
	return d.Acceptance[min(depth, len(d.Acceptance))-1]
}

// Emitted is the expected number of tokens that a round emits with the best tree
// of a shape: 1 and, for every node, the chance that it is accepted.
func (d Draft) Emitted(t Tree) float64 {
	type node struct {
		chance float64
		depth  int
	}
	expected := 1.0
	var frontier []node
	children := func(parent node) {
		if parent.depth == t.Steps {
			return
		}
		a := d.at(parent.depth + 1)
		missed := 1 - a
		for range t.TopK {
			frontier = append(frontier, node{parent.chance * a, parent.depth + 1})
			a = missed * d.Sibling
			missed -= a
		}
	}
	children(node{chance: 1})
	for taken := 1; taken < t.Tokens && len(frontier) > 0; taken++ {
		best := 0
		for i, n := range frontier {
			if n.chance > frontier[best].chance {
				best = i
			}
		}
		n := frontier[best]
		frontier = append(frontier[:best], frontier[best+1:]...)
		expected += n.chance
		children(n)
	}
	return expected
}

// shapes is the trees with so many tokens.
func shapes(tokens int) []Tree {
	const maxSteps = 8
	if tokens < 2 {
		return []Tree{{TopK: 1, Tokens: 1}}
	}
	out := []Tree{}
	if tokens-1 <= maxSteps {
		out = append(out, Tree{TopK: 1, Steps: tokens - 1, Tokens: tokens})
	}
	for _, k := range []int{2, 4, 8} {
		for steps := 1; steps <= maxSteps && steps < tokens; steps++ {
			if most := 1 + k + (steps-1)*k*k; tokens <= most {
				out = append(out, Tree{TopK: k, Steps: steps, Tokens: tokens})
			}
		}
	}
	return out
}
