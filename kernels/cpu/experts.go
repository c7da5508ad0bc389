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
	b.work.reset()
	e := expertWork{gate: gate, up: up, down: down}
	choices := x.Rows * ids.Cols
	// One expert may bring every choice to a batch, so each tensor has room for all.
	e.in = b.workTensor(kernels.F32, choices, x.Cols)
	e.gated = b.workTensor(kernels.F32, choices, gate[0].Out)
	e.upped = b.workTensor(kernels.F32, choices, gate[0].Out)
	e.out = b.workTensor(kernels.F32, choices, x.Cols)
	where := b.workTensor(kernels.I32, x.Rows, ids.Cols) // the row of out that a choice yields
	if b.err != nil {
		return
	}
	done, batch := 0, 0 // choices computed, and gathered for the next batch
	b.runs = b.runs[:0]
	for n := range gate {
		from := batch
		for t := range x.Rows {
			for c, id := range ids.I32Row(t) {
				if int(id) == first+n {
					copy(e.in.F32Row(batch), x.F32Row(t))
					where.I32Row(t)[c] = int32(done + batch)
					batch++
				}
			}
		}
		if batch > from {
			b.runs = append(b.runs, expertRun{expert: n, lo: from, hi: batch})
		}
		if batch >= expertBatch || n == len(gate)-1 {
			b.runExperts(&e, done, batch)
			done, batch = done+batch, 0
			b.runs = b.runs[:0]
		}
	}
	for t := range x.Rows {
		for c, id := range ids.I32Row(t) {
			if n := int(id) - first; n >= 0 && n < len(gate) {
				b.axpy(dst.F32Row(t), weights.F32Row(t)[c], e.out.F32Row(int(where.I32Row(t)[c])))
			}
		}
	}
}

// expertWork is the memory and the weights of one block of rows.
type expertWork struct {
	gate, up, down   []kernels.Matrix
	in, gated, upped kernels.Tensor // [choices of a batch, ...]
	out              kernels.Tensor // [choices, hidden], by expert
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
