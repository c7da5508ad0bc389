package cpu

import "github.com/octet-run/octet/kernels"

const (
	expertRows  = 128 // rows that Experts takes at a time, which bounds its memory
	expertBatch = 64  // choices after which the experts gathered so far run
)

// Experts adds to dst the weighted outputs of the chosen experts among
// [first, first+len(gate)), in the order of ids; others are another rank's.
func (b *Backend) Experts(dst, x, ids, weights kernels.Tensor, gate, up, down []kernels.Matrix, first int) {
	if len(gate) != len(up) || len(gate) != len(down) || ids.Rows != x.Rows || weights.Rows != x.Rows ||
		ids.Cols != weights.Cols || dst.Rows != x.Rows || dst.Cols != x.Cols {
		b.misfit("Experts", "x [%d, %d], dst [%d, %d], ids [%d, %d], %d gate, %d up, %d down matrices", x.Rows, x.Cols, dst.Rows, dst.Cols,
			ids.Rows, ids.Cols, len(gate), len(up), len(down))
		return
	}
	for lo := 0; lo < x.Rows && len(gate) > 0; lo += expertRows {
		hi := min(lo+expertRows, x.Rows)
		b.expertBlock(dst.RowRange(lo, hi), x.RowRange(lo, hi), ids.RowRange(lo, hi), weights.RowRange(lo, hi), gate, up, down, first)
	}
}

// expertBlock runs each expert once over all rows that chose it, so its weights
// are read once, and then adds up each row's outputs in the order of its ids.
func (b *Backend) expertBlock(dst, x, ids, weights kernels.Tensor, gate, up, down []kernels.Matrix, first int) {
	e := b.expertWork(x, ids, gate, up, down, first)
	if b.err != nil {
		return
	}
	done, batch := 0, 0 // choices computed, and gathered for the next batch
	b.runs = b.runs[:0]
	for n, chosen := range e.chosen {
		if chosen == 0 {
			continue
		}
		from := batch
		batch = e.gather(n, done, batch)
		b.runs = append(b.runs, expertRun{expert: n, lo: from, hi: batch})
		if batch >= expertBatch {
			b.runExperts(&e, done, batch)
			done, batch = done+batch, 0
			b.runs = b.runs[:0]
		}
	}
	b.runExperts(&e, done, batch)
	for t := range x.Rows {
		for c, id := range ids.I32Row(t) {
			if e.local(id) {
				b.axpy(dst.F32Row(t), weights.F32Row(t)[c], e.out.F32Row(int(e.where.I32Row(t)[c])))
			}
		}
	}
}

// expertWork is the memory and the weights of one block of rows.
type expertWork struct {
	gate, up, down   []kernels.Matrix
	first            int            // id of the first local expert
	x, ids           kernels.Tensor // rows of the block and their choices
	where            kernels.Tensor // [rows, TopK] row of out that a choice yields
	in, gated, upped kernels.Tensor // [choices of a batch, ...]
	out              kernels.Tensor // [choices, hidden], by expert
	chosen           []int32        // [local experts] how often
}

// expertWork lays out memory. One expert may bring every choice to a batch, so
// each tensor has room for all.
func (b *Backend) expertWork(x, ids kernels.Tensor, gate, up, down []kernels.Matrix, first int) expertWork {
	b.work.reset()
	choices, width := x.Rows*ids.Cols, gate[0].Out
	e := expertWork{
		gate: gate, up: up, down: down, first: first, x: x, ids: ids,
		where: b.workTensor(kernels.I32, x.Rows, ids.Cols),
		in:    b.workTensor(kernels.F32, choices, x.Cols),
		gated: b.workTensor(kernels.F32, choices, width),
		upped: b.workTensor(kernels.F32, choices, width),
		out:   b.workTensor(kernels.F32, choices, x.Cols),
	}
	counts := b.workTensor(kernels.I32, 1, len(gate))
	if b.err != nil {
		return e
	}
	e.chosen = counts.I32Row(0)
	clear(e.chosen)
	for t := range ids.Rows {
		for _, id := range ids.I32Row(t) {
			if e.local(id) {
				e.chosen[int(id)-first]++
			}
		}
	}
	return e
}

func (e *expertWork) local(id int32) bool {
	return int(id) >= e.first && int(id) < e.first+len(e.gate)
}

// gather copies the rows that chose expert n to the batch and returns its size.
func (e *expertWork) gather(n, done, batch int) int {
	for t := range e.x.Rows {
		for c, id := range e.ids.I32Row(t) {
			if int(id) == e.first+n {
				copy(e.in.F32Row(batch), e.x.F32Row(t))
				e.where.I32Row(t)[c] = int32(done + batch)
				batch++
			}
		}
	}
	return batch
}

// expertRun is the rows [lo, hi) of a batch, which one expert computes.
type expertRun struct{ expert, lo, hi int }

// runExperts computes the gathered batch of rows into out from row done on.
func (b *Backend) runExperts(e *expertWork, done, batch int) {
	b.startProducts()
	for _, r := range b.runs {
		in := e.in.RowRange(r.lo, r.hi)
		b.addProduct(e.gated.RowRange(r.lo, r.hi), in, e.gate[r.expert])
		b.addSameX(e.upped.RowRange(r.lo, r.hi), in, e.up[r.expert])
	}
	b.runProducts()
	for i := range batch {
		b.swiglu(e.gated.F32Row(i), e.gated.F32Row(i), e.upped.F32Row(i))
	}
	b.startProducts()
	for _, r := range b.runs {
		b.addProduct(e.out.RowRange(done+r.lo, done+r.hi), e.gated.RowRange(r.lo, r.hi), e.down[r.expert])
	}
	b.runProducts()
}

// workTensor is memory within the current call, which has reset b.work.
func (b *Backend) workTensor(d kernels.DType, rows, cols int) kernels.Tensor {
	t, err := takeTensor(&b.work, d, rows, cols)
	if err != nil {
		b.fail(err)
	}
	return t
}
