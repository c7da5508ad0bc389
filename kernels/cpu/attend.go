package cpu

import (
	"math"
	"math/bits"
	"unsafe"

	"github.com/octet-run/octet/kernels"
)

// mostOwn is how many rows an ancestor set can name.
const mostOwn = 64

// attending is the state of one unit of attention. Vectors are the queries of
// the unit, a row's heads adjacent.
type attending struct {
	*attention
	*worker
	unit attentionUnit
	s    *kernels.Sequence
	keys product // queries times keys
	k, v kernels.Tensor
	work tileWork

	scores kernels.Tensor // [vectors, AttentionSpan], then weights
	own    kernels.Tensor // [vectors, mostOwn] scores of the sequence's own rows
	sums   kernels.Tensor // [vectors, valueDim] of the current span
	result kernels.Tensor // [vectors, valueDim] of all spans so far
	wide   kernels.Tensor // [AttentionSpan, valueDim] values as F32
	total  []float32      // sum of weights so far
	most   []float32      // largest score so far
}

// working lays out the memory of a unit.
func (a *attention) working(l *layout, vectors int) (t attending) {
	tensor := func(rows, cols int) kernels.Tensor {
		return kernels.Tensor{DType: kernels.F32, Rows: rows, Cols: cols, Stride: cols, Host: l.part(rows*cols, 4)}
	}
	t.attention = a
	t.keys = product{x: tensor(vectors, a.dim), w: kernels.Matrix{In: a.dim, Data: a.k}, format: noFormat}
	format := plainFormat(a.k.DType)
	if len(a.tiles[format]) > 0 && a.dim > 0 {
		t.keys.format, t.keys.tiles = format, a.tiles[format]
		chunk := chunkOf[format].weights
		t.keys.chunks = (a.dim + chunk - 1) / chunk
		t.keys.packed = l.part(vectors*t.keys.chunks*chunk, 4)
		t.work = t.keys.tileWork(l)
	}
	t.scores = tensor(vectors, AttentionSpan)
	t.own = tensor(vectors, mostOwn)
	t.sums = tensor(vectors, a.valueDim)
	t.result = tensor(vectors, a.valueDim)
	if a.v.DType != kernels.F32 {
		t.wide = tensor(AttentionSpan, a.valueDim)
	}
	t.total, t.most = l.f32(vectors), l.f32(vectors)
	return t
}

// unit computes one unit of attention.
func (a *attention) unit(w *worker, i int) {
	u := a.units[i]
	t := a.working(&layout{base: w.base()}, (u.rowHi-u.rowLo)*u.heads)
	t.worker, t.unit, t.s = w, u, &a.batch.Sequences[u.sequence]
	t.k = a.k.ColRange(u.kvHead*a.dim, (u.kvHead+1)*a.dim)
	t.v = a.v.ColRange(u.kvHead*a.valueDim, (u.kvHead+1)*a.valueDim)
	t.run()
}

func (t *attending) run() {
	t.loadQueries()
	end := common(t.s, t.unit.rowHi)
	begin := end
	for i := t.unit.rowLo; i < t.unit.rowHi; i++ {
		lo, hi := t.sees(t.s, i)
		begin, end = min(begin, lo), max(end, hi)
	}
	if t.s.Ancestors != nil {
		t.scoreOwn()
	}
	for first := begin / AttentionSpan * AttentionSpan; first < end; first += AttentionSpan {
		t.span(first, max(first, begin), min(first+AttentionSpan, end))
	}
	for i := t.unit.rowLo; i < t.unit.rowHi; i++ {
		row := t.dst.F32Row(t.s.First + i)
		for h := range t.unit.heads {
			r := t.vector(i, h)
			to := row[(t.unit.head+h)*t.valueDim:][:t.valueDim]
			copy(to, t.result.F32Row(r))
			t.worker.scale(to, 1/t.total[r])
		}
	}
}

// vector is the index of head h of row i.
func (t *attending) vector(i, h int) int { return (i-t.unit.rowLo)*t.unit.heads + h }

func (t *attending) loadQueries() {
	for i := t.unit.rowLo; i < t.unit.rowHi; i++ {
		row := t.q.F32Row(t.s.First + i)
		for h := range t.unit.heads {
			copy(t.keys.x.F32Row(t.vector(i, h)), row[(t.unit.head+h)*t.dim:])
		}
	}
	if t.keys.format != noFormat {
		t.keys.pack()
	}
}

// score writes the products of all vectors with n keys from slot on.
func (t *attending) score(dst kernels.Tensor, slot, n int) {
	p := &t.keys
	p.dst, p.w.Data, p.w.Out = dst, t.k.RowRange(slot, slot+n), n
	if p.format == noFormat {
		oracleMatMul(dst, p.x, p.w)
		return
	}
	p.split()
	p.tilesOf(t.tile, t.work, 0, p.steps)
}

// scoreOwn scores the sequence's own rows, which each row sees at other positions.
func (t *attending) scoreOwn() {
	for j, n := 0, 0; j < len(t.s.Scratch)+t.s.Rows; j += n {
		slot := t.ownSlot(t.s, j)
		for n = 1; j+n < len(t.s.Scratch)+t.s.Rows && t.ownSlot(t.s, j+n) == slot+n; n++ {
		}
		t.score(t.own.ColRange(j, j+n), slot, n)
	}
}

// span reduces positions [lo, hi) of the span that begins at first.
func (t *attending) span(first, lo, hi int) {
	shared := min(hi, common(t.s, t.unit.rowHi)) // positions [lo, shared) have one key for all
	t.eachRun(t.s, lo, shared, func(position, slot, n int) {
		t.score(t.scores.ColRange(position-first, position-first+n), slot, n)
	})
	type partial struct{ sum, max float32 }
	var partials [unitVectors]partial
	for i := t.unit.rowLo; i < t.unit.rowHi; i++ {
		for h := range t.unit.heads {
			p := &partials[t.vector(i, h)]
			p.sum, p.max = t.weights(i, t.vector(i, h), first, lo, shared)
		}
	}
	for r := range t.sums.Rows {
		clear(t.sums.F32Row(r))
	}
	t.eachRun(t.s, lo, shared, func(position, slot, n int) {
		t.addValues(0, t.sums.Rows, position-first, slot, n)
	})
	for i := t.unit.rowLo; i < t.unit.rowHi; i++ {
		if t.s.Ancestors != nil {
			t.addOwn(i, first)
		}
		seenLo, seenHi := t.sees(t.s, i)
		if max(seenLo, first) >= min(seenHi, first+AttentionSpan) {
			continue
		}
		for h := range t.unit.heads {
			r := t.vector(i, h)
			t.mergeSpan(r, partials[r].sum, partials[r].max, first <= seenLo)
		}
	}
}

// weights turns the scores of vector r of row i into weights, zero where the
// row does not see, and returns their sum and the largest score.
func (t *attending) weights(i, r, first, lo, shared int) (sum, most float32) {
	row := t.scores.F32Row(r)
	seenLo, seenHi := t.sees(t.s, i)
	from, to := max(seenLo, first)-first, min(seenHi, first+AttentionSpan)-first
	if from >= to {
		clear(row[lo-first : max(lo, shared)-first])
		return 0, 0
	}
	if t.s.Ancestors != nil {
		position := t.s.Committed
		for set := t.s.Ancestors[i]; set != 0; set &= set - 1 {
			if position >= first && position < first+AttentionSpan {
				row[position-first] = t.own.F32Row(r)[bits.TrailingZeros64(set)]
			}
			position++
		}
	}
	aligned := from &^ 15 // lanes go by position
	for j := aligned; j < from; j++ {
		row[j] = float32(math.Inf(-1))
	}
	most = t.max(row[from:to]) * t.attention.scale
	sum = t.expSum(row[aligned:to], t.attention.scale, most)
	if lo-first < from {
		clear(row[lo-first : from])
	}
	if to < shared-first {
		clear(row[to : shared-first])
	}
	return sum, most
}

// addOwn adds the values of row i's ancestors in the span at first.
func (t *attending) addOwn(i, first int) {
	position := t.s.Committed
	for set := t.s.Ancestors[i]; set != 0; set &= set - 1 {
		if position >= first && position < first+AttentionSpan {
			t.addValues(t.vector(i, 0), t.unit.heads, position-first, t.ownSlot(t.s, bits.TrailingZeros64(set)), 1)
		}
		position++
	}
}

// mergeSpan adds the current span to vector r's result.
func (t *attending) mergeSpan(r int, sum, most float32, isFirst bool) {
	if isFirst {
		t.total[r], t.most[r] = sum, most
		copy(t.result.F32Row(r), t.sums.F32Row(r))
		return
	}
	old, now := float32(1), float32(1)
	if most <= t.most[r] {
		now = expf(most - t.most[r])
	} else {
		old = expf(t.most[r] - most)
		t.most[r] = most
	}
	t.total[r] = fma32(sum, now, t.total[r]*old)
	t.merge(t.result.F32Row(r), old, t.sums.F32Row(r), now)
}

// addValues adds to the sums of rows vectors from r on the values of n keys from
// slot on, weighed by the scores from column at on.
func (t *attending) addValues(r, rows, at, slot, n int) {
	v := t.v.RowRange(slot, slot+n)
	if v.DType != kernels.F32 {
		wide := t.wide.RowRange(0, n)
		for i := range n {
			Widen(wide.F32Row(i), v, i)
		}
		v = wide
	}
	p, sums := t.scores.RowRange(r, r+rows).ColRange(at, at+n), t.sums.RowRange(r, r+rows)
	done := t.weighWide(p, v, sums)
	for i := 0; i < rows && done < v.Cols; i++ {
		for j, weight := range p.F32Row(i) {
			t.axpy(sums.F32Row(i)[done:], weight, v.F32Row(j)[done:])
		}
	}
}

// weighWide does what whole registers can do and returns how many columns that was.
func (t *attending) weighWide(p, v, sums kernels.Tensor) int {
	if len(t.weigh) == 0 {
		return 0
	}
	done := v.Cols / t.columns * t.columns
	for r, k := 0, 0; r < sums.Rows; r += t.weigh[k].rows {
		for t.weigh[k].rows > sums.Rows-r {
			k++
		}
		for c := 0; c < done; {
			f, columns := t.weigh[k].many, 4*t.columns
			if done-c < columns {
				f, columns = t.weigh[k].one, t.columns
			}
			*t.worker.span = spanArgs{
				v: unsafe.Add(v.Host, c*4), vStride: uintptr(v.Stride * 4),
				p: unsafe.Add(p.Host, r*p.Stride*4), pStride: uintptr(p.Stride * 4), keys: p.Cols,
				dst: unsafe.Add(sums.Host, (r*sums.Stride+c)*4), dstStride: uintptr(sums.Stride * 4),
			}
			call(f, t.worker.span)
			c += columns
		}
	}
	return done
}
