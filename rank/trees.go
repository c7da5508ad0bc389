package rank

import (
	"fmt"

	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/speculation"
)

// draft gives every decoding entry its tree: rank 0's, or the same by every rank
// for itself.
func (e *Engine) draft(r *round.Round) ([]*speculation.Tree, error) {
	trees := make([]*speculation.Tree, len(r.Entries))
	asked := false
	for i := range r.Entries {
		if entry := &r.Entries[i]; entry.Kind == round.Decode {
			if len(entry.Tokens) != 1 {
				return nil, fmt.Errorf("slot %d decodes from %d tokens instead of one", entry.Slot, len(entry.Tokens))
			}
			if err := shape(entry.Draft).Validate(); err != nil {
				return nil, fmt.Errorf("slot %d: %w", entry.Slot, err)
			}
			trees[i] = speculation.NewTree(entry.Tokens[0])
			asked = asked || entry.Draft.By != round.NoDraft
		}
	}
	if e.drafting != nil {
		if err := e.draftByNetwork(r, trees); err != nil {
			return nil, err
		}
	}
	if !asked {
		return trees, nil
	}
	if e.rank == 0 {
		e.draftByLookup(r, trees)
	}
	if !e.config.DraftOnAll || anyLookup(r) {
		return trees, e.exchangeTrees(r, trees)
	}
	return trees, nil
}

func anyLookup(r *round.Round) bool {
	for i := range r.Entries {
		if r.Entries[i].Draft.By == round.NGram {
			return true
		}
	}
	return false
}

// draftByNetwork grows the trees that EAGLE-3 was asked for, and lets no sequence
// that does not draft fall too far behind.
func (e *Engine) draftByNetwork(r *round.Round, trees []*speculation.Tree) error {
	var states, behind []*draftState
	var shapes []speculation.Shape
	var roots []int32
	var at []int
	for i := range r.Entries {
		entry := &r.Entries[i]
		if entry.Kind != round.Decode {
			continue
		}
		state := e.slots[entry.Slot].draft
		switch {
		case entry.Draft.By == round.Eagle3 && state == nil:
			return fmt.Errorf("slot %d was not opened to be drafted by a network", entry.Slot)
		case entry.Draft.By == round.Eagle3:
			states, roots, at = append(states, state), append(roots, entry.Tokens[0]), append(at, i)
			shapes = append(shapes, shape(entry.Draft))
		case state != nil && state.rows >= flushAt:
			state.waiting = append(state.waiting, entry.Tokens[0])
			behind = append(behind, state)
		}
	}
	if len(behind) > 0 {
		if _, err := e.drafting.flush(behind); err != nil {
			return err
		}
	}
	if len(states) == 0 {
		return nil
	}
	grown, err := e.drafting.grow(states, shapes, roots)
	for j, tree := range grown {
		trees[at[j]] = tree
	}
	return err
}

func shape(d round.Draft) speculation.Shape {
	return speculation.Shape{TopK: int(d.TopK), Steps: int(d.Steps), Nodes: int(d.Nodes)}
}

func (e *Engine) draftByLookup(r *round.Round, trees []*speculation.Tree) {
	for i := range r.Entries {
		if entry := &r.Entries[i]; entry.Draft.By == round.NGram && entry.Kind == round.Decode {
			root, most := entry.Tokens[0], min(int(entry.Draft.Steps), max(int(entry.Draft.Nodes)-1, 0))
			trees[i] = speculation.NewChain(root, e.slots[entry.Slot].lookup().Draft(root, most))
		}
	}
}

// exchangeTrees sends rank 0's trees to the others: for every entry that drafts,
// the number of nodes, then token and parent of each but the root. The size
// follows from the round, so all ranks know it.
func (e *Engine) exchangeTrees(r *round.Round, trees []*speculation.Tree) error {
	size := 0
	for i := range r.Entries {
		size += treeWords(&r.Entries[i])
	}
	words := make([]int32, size)
	if e.rank == 0 {
		packTrees(words, r, trees)
	}
	e.reducer.Broadcast(kernels.HostTensor(kernels.I32, 1, len(words), words), 0)
	if err := e.reducer.failure(); err != nil {
		return err
	}
	return unpackTrees(words, r, trees)
}

func treeWords(entry *round.Entry) int {
	if entry.Kind != round.Decode || entry.Draft.By == round.NoDraft {
		return 0
	}
	return 1 + 2*max(int(entry.Draft.Nodes)-1, 0)
}

func packTrees(words []int32, r *round.Round, trees []*speculation.Tree) {
	for i := range r.Entries {
		n := treeWords(&r.Entries[i])
		if n == 0 {
			continue
		}
		tree := trees[i]
		words[0] = int32(tree.Len())
		for node := 1; node < tree.Len(); node++ {
			words[2*node-1], words[2*node] = tree.Tokens[node], tree.Parents[node]
		}
		words = words[n:]
	}
}

func unpackTrees(words []int32, r *round.Round, trees []*speculation.Tree) error {
	for i := range r.Entries {
		entry := &r.Entries[i]
		n := treeWords(entry)
		if n == 0 {
			continue
		}
		nodes := int(words[0])
		if nodes < 1 || nodes > max(int(entry.Draft.Nodes), 1) {
			return fmt.Errorf("slot %d: a tree of %d nodes came where at most %d were asked for", entry.Slot, nodes, entry.Draft.Nodes)
		}
		tree := speculation.NewTree(entry.Tokens[0])
		for node := 1; node < nodes; node++ {
			token, parent := words[2*node-1], words[2*node]
			if parent < 0 || int(parent) >= node {
				return fmt.Errorf("slot %d: node %d of a tree has parent %d", entry.Slot, node, parent)
			}
			tree.Add(int(parent), token, 0)
		}
		trees[i] = tree
		words = words[n:]
	}
	return nil
}
