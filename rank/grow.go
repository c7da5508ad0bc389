package rank

import (
	"fmt"
	"unsafe"

	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/speculation"
)

// growth is one sequence's tree as it grows.
type growth struct {
	state   *draftState
	builder *speculation.Builder
	// parents of the next level's rows are rows of the pass before, which begin at
	// row passFirst and are numbered from firstRow on by the builder.
	passFirst int
	firstRow  int
	handedOut int // rows that the builder has numbered so far
}

// grow drafts a tree for every sequence, level by level, all sequences in one
// pass. Every waiting row goes first; roots are the tokens that follow the last.
func (d *drafting) grow(states []*draftState, shapes []speculation.Shape, roots []int32) ([]*speculation.Tree, error) {
	growing := make([]*growth, len(states))
	for i, s := range states {
		s.waiting = append(s.waiting, roots[i])
		builder, err := speculation.NewBuilder(shapes[i], roots[i])
		if err != nil {
			return nil, err
		}
		growing[i] = &growth{state: s, builder: builder}
	}
	lasts, err := d.flush(states)
	if err != nil {
		return nil, err
	}
	counts := make([]int, len(growing))
	for i, g := range growing {
		g.passFirst, counts[i] = int(lasts[i]), 1
	}
	if err := d.expand(growing, counts, shapes, lasts); err != nil {
		return nil, err
	}
	for {
		counts, err := d.step(growing)
		if err != nil {
			return nil, err
		}
		if counts == nil {
			break
		}
		if err := d.expand(growing, counts, shapes, nil); err != nil {
			return nil, err
		}
	}
	trees := make([]*speculation.Tree, len(growing))
	for i, g := range growing {
		g.state.cache.Rollback()
		trees[i] = g.builder.Tree()
	}
	return trees, nil
}

// step runs the beams of all trees that are not done. counts is each tree's number
// of rows in the pass, nil when all trees are done.
func (d *drafting) step(growing []*growth) (counts []int, err error) {
	d.resetBatch()
	var parents []int32
	counts = make([]int, len(growing))
	for i, g := range growing {
		if g.builder.Done() {
			continue
		}
		beam := g.builder.Beam()
		tokens, ancestors := make([]int32, len(beam)), make([]uint64, len(beam))
		for j, row := range beam {
			tokens[j], ancestors[j] = row.Token, row.Ancestors
			parent := g.passFirst
			if row.Parent >= 0 {
				parent += row.Parent - g.firstRow
			}
			parents = append(parents, int32(parent))
		}
		g.passFirst, g.firstRow = len(d.batch.Tokens), g.handedOut
		g.handedOut += len(beam)
		if err := g.state.cache.AppendTree(&d.batch, tokens, ancestors); err != nil {
			return nil, fmt.Errorf("drafter: %w", err)
		}
		counts[i] = len(beam)
	}
	if len(parents) == 0 {
		return nil, nil
	}
	d.drafter.Step(&d.batch, parents)
	return counts, nil
}

// expand gives each tree the best tokens after its rows of the last pass: the
// named rows, or all.
func (d *drafting) expand(growing []*growth, counts []int, shapes []speculation.Shape, rows []int32) error {
	k := 0
	for i, shape := range shapes {
		if counts[i] > 0 {
			k = max(k, shape.TopK)
		}
	}
	logits := d.drafter.Logits(rows)
	values := d.backend.Scratch(kernels.F32, logits.Rows, k)
	ids := d.backend.Scratch(kernels.I32, logits.Rows, k)
	total := d.backend.Scratch(kernels.F32, logits.Rows, 1)
	d.backend.TopK(values, ids, logits, k)
	d.backend.LogSumExp(total, logits)
	if err := d.backend.Sync(); err != nil {
		return fmt.Errorf("drafter: %w", err)
	}
	for _, t := range []*kernels.Tensor{&values, &ids, &total} {
		if err := readable(d.backend, t); err != nil {
			return fmt.Errorf("drafter: %w", err)
		}
	}
	at := 0
	for i, g := range growing {
		if counts[i] == 0 {
			continue
		}
		best := make([][]speculation.Candidate, counts[i])
		for j := range best {
			best[j] = d.candidates(values.F32Row(at), ids.I32Row(at), total.F32Row(at)[0], shapes[i].TopK)
			at++
		}
		if err := g.builder.Expand(best...); err != nil {
			return err
		}
	}
	return nil
}

// readable brings a small tensor to the host, if it is not there.
func readable(b kernels.Backend, t *kernels.Tensor) error {
	if t.Host != nil || t.Empty() {
		return nil
	}
	data := make([]float32, t.Rows*t.Cols) // or any other 32-bit type
	if err := b.Download(unsafe.Slice((*byte)(unsafe.Pointer(&data[0])), 4*len(data)), *t); err != nil {
		return err
	}
	*t = kernels.HostTensor(t.DType, t.Rows, t.Cols, data)
	return nil
}

func (d *drafting) candidates(values []float32, ids []int32, total float32, k int) []speculation.Candidate {
	best := make([]speculation.Candidate, k)
	for i := range best {
		best[i] = speculation.Candidate{Token: d.drafter.TargetToken(ids[i]), Logprob: values[i] - total}
	}
	return best
}
