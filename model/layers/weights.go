package layers

import (
	"fmt"

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
		m.Bias = w.vector(l.Name+".bias", l.Out, lo, hi)
	}
	return m
}

// Columns takes inputs [lo, hi) of a linear layer (row parallel). Its products
// are partial sums; rank 0 alone adds the bias.
func (w *Weights) Columns(l Linear, lo, hi int) kernels.Matrix {
	m := w.matrix(l, checkpoint.ByColumns, lo, hi)
	if l.Bias {
		if w.Shard.Rank == 0 {
			m.Bias = w.vector(l.Name+".bias", l.Out, 0, l.Out)
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
	return w.vector(name+".weight", n, 0, n)
}

// vector takes elements [lo, hi) of a vector of n elements, all of them finite.
func (w *Weights) vector(name string, n, lo, hi int) kernels.Tensor {
	t := w.Loader.TakeVector(name, n, lo, hi, checkpoint.Floats()...)
	w.demandFinite(name, t, 0, "finite numbers")
	return w.place(t)
}

// gate takes the matrix of a router. What is no number in it would not show in the
// logits: it only sends rows to other experts.
func (w *Weights) gate(name string, experts, hidden int) kernels.Matrix {
	t := w.Loader.Take(checkpoint.Slice{Tensor: name, Rows: experts, Cols: hidden, Axis: checkpoint.Whole}, checkpoint.Floats()...)
	if w.Loader.Eager() {
		w.demandFinite(name, t, 0, "finite numbers")
	}
	return kernels.Matrix{Out: experts, In: hidden, Data: w.place(t)}
}

// demandFinite looks at every value of a host tensor, whose first row is row first in the file.
func (w *Weights) demandFinite(name string, t kernels.Tensor, first int, expected string) {
	if t.Host == nil {
		return
	}
	for r := range t.Rows {
		if finite(t, r) {
			continue
		}
		info, _ := w.Loader.Files().Lookup(name)
		w.Loader.Fail(&checkpoint.FormatError{
			File: info.File, Tensor: name, Expected: expected,
			Found: fmt.Sprintf("NaN or infinity in row %d", first+r), Advice: "the file is damaged: download it again",
		})
		return
	}
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
