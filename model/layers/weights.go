package layers

import (
	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/checkpoint"
)

// Weights takes one rank's linear layers out of a checkpoint, in whatever format
// they are stored.
type Weights struct {
	Loader *checkpoint.Loader
	Quant  model.Quant
	Shard  model.Shard
}

// Linear names a linear layer and its full size.
type Linear struct {
	Name string // without ".weight"
	Out  int
	In   int
	Bias bool
}

// Rows takes outputs [lo, hi) of a linear layer (column parallel).
func (w *Weights) Rows(l Linear, lo, hi int) kernels.Matrix {
	m := w.matrix(l, checkpoint.ByRows, lo, hi)
	if l.Bias {
		m.Bias = w.Loader.Vector(l.Name+".bias", l.Out, lo, hi)
	}
	return m
}

// Columns takes inputs [lo, hi) of a linear layer (row parallel). Its products
// are partial sums; rank 0 alone adds the bias.
func (w *Weights) Columns(l Linear, lo, hi int) kernels.Matrix {
	m := w.matrix(l, checkpoint.ByColumns, lo, hi)
	if l.Bias {
		if w.Shard.Rank == 0 {
			m.Bias = w.Loader.Vector(l.Name+".bias", l.Out, 0, l.Out)
		} else {
			w.Loader.Skip(l.Name + ".bias")
		}
	}
	return m
}

// Whole takes a linear layer that every rank computes.
func (w *Weights) Whole(l Linear) kernels.Matrix { return w.Rows(l, 0, l.Out) }

// Norm takes the weight of an RMSNorm.
func (w *Weights) Norm(name string, n int) kernels.Tensor {
	return w.Loader.Vector(name+".weight", n, 0, n)
}

func (w *Weights) matrix(l Linear, axis checkpoint.Axis, lo, hi int) kernels.Matrix {
	s := checkpoint.Slice{Tensor: l.Name + ".weight", Rows: l.Out, Cols: l.In, Axis: axis, Lo: lo, Hi: hi}
	m := kernels.Matrix{Out: hi - lo, In: l.In}
	if axis == checkpoint.ByColumns {
		m.Out, m.In = l.Out, hi-lo
		s.Split = w.Shard.Ranks > 1
	}
	switch w.method(l.Name) {
	case model.FP8Blocks:
		w.fp8(&m, s)
	case model.INT4Groups:
		w.int4(&m, l.Name, s)
	default:
		m.Data = w.place(w.Loader.Take(s, checkpoint.Floats()...))
	}
	return m
}

func (w *Weights) place(t kernels.Tensor) kernels.Tensor { return w.Loader.Place(t)[0] }
