package rank

import (
	"fmt"
	"math"

	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/speculation"
)

// pass is one verify pass: where each entry's rows are and what came of them.
type pass struct {
	spans  []span // one per entry
	output model.Output
	logits kernels.Tensor // rank 0: [rows that need them, vocabulary]
}

// span is one entry's rows: [first, first+rows) of the batch, and its logits.
type span struct {
	first, rows        int
	firstLogit, logits int
}

// verify runs the target over every entry's rows.
func (e *Engine) verify(r *round.Round, trees []*speculation.Tree) (*pass, error) {
	b := &e.batch
	b.Tokens, b.Positions, b.Slots, b.Sequences = b.Tokens[:0], b.Positions[:0], b.Slots[:0], b.Sequences[:0]
	p := &pass{spans: make([]span, len(r.Entries))}
	var wanted []int32
	for i := range r.Entries {
		entry := &r.Entries[i]
		if entry.Kind == round.Release {
			continue
		}
		s := e.slots[entry.Slot]
		first := len(b.Tokens)
		if err := e.addRows(s, entry, trees[i]); err != nil {
			return nil, fmt.Errorf("slot %d: %w", entry.Slot, err)
		}
		at := span{first: first, rows: len(b.Tokens) - first, firstLogit: len(wanted)}
		at.logits = logitRows(entry, at.rows)
		for row := at.rows - at.logits; row < at.rows; row++ {
			wanted = append(wanted, int32(first+row))
		}
		p.spans[i] = at
	}
	if len(b.Tokens) == 0 {
		return p, nil
	}
	if len(b.Tokens) > e.config.MaxRows {
		return nil, fmt.Errorf("a round of %d rows, this group runs at most %d", len(b.Tokens), e.config.MaxRows)
	}
	done, err := e.forward(wanted)
	if err != nil {
		return nil, err
	}
	p.output = done.output
	if len(wanted) > 0 {
		if e.poisoned {
			if done.logits, err = e.poison(done.logits); err != nil {
				return nil, err
			}
		}
		p.logits = e.reducer.GatherToRoot(done.logits, e.target.VocabWidths())
	}
	e.commitChunks(r)
	if err := e.reducer.failure(); err != nil {
		return nil, err
	}
	return p, e.backend.Sync()
}

// forward enqueues the pass over the batch, with the logits of the wanted rows. On a
// GPU a pass that wants them all is a graph.
func (e *Engine) forward(wanted []int32) (result, error) {
	b := &e.batch
	all := len(wanted) == len(b.Tokens)
	pass := func() result {
		done := result{output: e.target.Forward(b)}
		switch {
		case all: // in order, as they are
			done.logits = e.target.Logits(done.output.Hidden, nil)
		case len(wanted) > 0:
			done.logits = e.target.Logits(done.output.Hidden, wanted)
		}
		return done
	}
	if e.graphs == nil || !all || len(b.Tokens) > graphRows {
		return pass(), nil
	}
	return e.graphs.run(b, pass)
}

// poison is the logits with one that is no number.
func (e *Engine) poison(logits kernels.Tensor) (kernels.Tensor, error) {
	if gpu, ok := e.reducer.(*deviceReducer); ok {
		var err error
		if logits, err = gpu.fetch(logits); err != nil {
			return logits, err
		}
	}
	logits.F32Row(0)[0] = float32(math.NaN())
	return logits, nil
}

func (e *Engine) addRows(s *slot, entry *round.Entry, tree *speculation.Tree) error {
	if tree != nil {
		s.tree = tree
		return s.cache.AppendTree(&e.batch, tree.Tokens, tree.Ancestors)
	}
	if len(entry.Tokens) == 0 {
		return fmt.Errorf("a chunk without tokens")
	}
	return s.cache.Append(&e.batch, entry.Tokens)
}

// logitRows is how many of an entry's rows, counted from the end, need logits.
func logitRows(entry *round.Entry, rows int) int {
	switch {
	case entry.Kind == round.Decode, entry.Kind == round.Score:
		return rows
	case entry.Last:
		return 1
	}
	return 0
}

// commitChunks keeps prefilled rows: nobody will take them back.
func (e *Engine) commitChunks(r *round.Round) {
	for i := range r.Entries {
		if entry := &r.Entries[i]; entry.Kind == round.Prefill || entry.Kind == round.Score {
			s := e.slots[entry.Slot]
			s.cache.Commit(len(entry.Tokens))
			s.observe(entry.Tokens)
		}
	}
}

// follow gives the drafter the features of the pass.
func (e *Engine) follow(r *round.Round, p *pass) error {
	if e.drafting == nil {
		return nil
	}
	var chunks []chunk
	for i := range r.Entries {
		entry, at := &r.Entries[i], p.spans[i]
		if entry.Kind == round.Release || e.slots[entry.Slot].draft == nil {
			continue
		}
		state := e.slots[entry.Slot].draft
		if entry.Kind == round.Decode {
			e.drafting.verified(state, p.output.Features, at.first, at.rows)
		} else {
			chunks = append(chunks, chunk{state, at.first, entry.Tokens})
		}
	}
	if len(chunks) == 0 {
		return nil
	}
	return e.drafting.prefilled(chunks, p.output.Features)
}
