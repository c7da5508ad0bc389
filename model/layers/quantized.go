package layers

import (
	"fmt"
	"slices"

	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/checkpoint"
)

const (
	fp8Block  = 128
	int4Group = 32
	int4Pack  = 8 // values in one int32
)

// blocks is the number of FP8 scale blocks that [lo, hi) touches, from block first.
func blocks(lo, hi int) (first, last int) {
	if lo == hi {
		return lo / fp8Block, lo / fp8Block
	}
	return lo / fp8Block, (hi + fp8Block - 1) / fp8Block
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }

// fp8 takes a slice of a matrix with one scale per 128x128 block. The slice may
// begin anywhere in a block: RowPhase and ColPhase say where.
func (w *Weights) fp8(m *kernels.Matrix, s checkpoint.Slice) {
	m.Format = kernels.FP8Block
	data := w.Loader.Take(s, kernels.F8E4M3)
	w.refuseNaN(s, data)
	m.Data = w.place(data)
	if s.Axis == checkpoint.ByColumns {
		m.ColPhase = s.Lo % fp8Block
	} else {
		m.RowPhase = s.Lo % fp8Block
	}
	m.Scale = w.place(w.wideScales(fp8Scale(s)))
}

// wideScales takes scales as F32. Some checkpoints store them in 16 bits.
func (w *Weights) wideScales(s checkpoint.Slice) kernels.Tensor {
	stored := w.scales(s, kernels.F32, kernels.BF16, kernels.F16)
	if stored.DType == kernels.F32 {
		return stored
	}
	wide := w.Loader.Alloc(kernels.F32, stored.Rows, stored.Cols)
	if stored.Host != nil && wide.Host != nil {
		for r := range wide.Rows {
			copy(wide.F32Row(r), floatsOf(stored, r))
		}
	}
	return wide
}

// method is how a linear layer is stored: as the configuration says, unless the
// file has it as plain floats and no scales. Exporters forget layers in the list of
// those that they left alone.
func (w *Weights) method(module string) model.QuantMethod {
	method := w.Quant.Of(module)
	if method == model.NoQuant {
		return method
	}
	files := w.Loader.Files()
	info, ok := files.Lookup(module + ".weight")
	if ok && slices.Contains(checkpoint.Floats(), info.DType) &&
		!files.Has(module+".weight_scale_inv") && !files.Has(module+".weight_packed") {
		return model.NoQuant
	}
	return method
}

// refuseNaN looks for the one code of E4M3 that is no number. The kernels would read
// it as 480, so that a damaged file would compute something. Other float types keep
// their NaN, which shows in the logits.
func (w *Weights) refuseNaN(s checkpoint.Slice, t kernels.Tensor) {
	if t.Host == nil || !w.Loader.Eager() {
		return
	}
	for r := range t.Rows {
		c := nanE4M3(t.ByteRow(r))
		if c < 0 {
			continue
		}
		info, _ := w.Loader.Files().Lookup(s.Tensor)
		if s.Axis == checkpoint.ByColumns {
			c += s.Lo
		} else {
			r += s.Lo
		}
		w.Loader.Fail(&checkpoint.FormatError{
			File: info.File, Tensor: s.Tensor, Expected: "numbers",
			Found: fmt.Sprintf("NaN in row %d, column %d", r, c), Advice: "the file is damaged: download it again",
		})
		return
	}
}

// fp8Scale is the slice of scales that goes with a slice of weights.
func fp8Scale(s checkpoint.Slice) checkpoint.Slice {
	s.Tensor += "_scale_inv"
	s.Rows, s.Cols = ceilDiv(s.Rows, fp8Block), ceilDiv(s.Cols, fp8Block)
	s.Lo, s.Hi = blocks(s.Lo, s.Hi)
	return s
}

// scales takes a slice of scales on the host. One that is no number would spoil
// every result, far from its cause.
func (w *Weights) scales(s checkpoint.Slice, types ...kernels.DType) kernels.Tensor {
	t := w.Loader.Take(s, types...)
	first := 0
	if s.Axis == checkpoint.ByRows {
		first = s.Lo
	}
	w.demandFinite(s.Tensor, t, first, "finite scales")
	return t
}

// skip marks linear layers as other ranks' concern.
func (w *Weights) skip(names ...string) {
	for _, name := range names {
		switch w.method(name) {
		case model.FP8Blocks:
			w.Loader.Skip(name+".weight", name+".weight_scale_inv")
		case model.INT4Groups:
			w.Loader.Skip(name+".weight_packed", name+".weight_scale", name+".weight_shape")
		default:
			w.Loader.Skip(name + ".weight")
		}
	}
}

// int4 takes a slice of a matrix packed by compressed-tensors: eight values to
// an int32 along the input, one scale per group of 32. Columns are cut at groups.
func (w *Weights) int4(m *kernels.Matrix, name string, s checkpoint.Slice) {
	m.Format = kernels.INT4Group
	if s.Cols%int4Group != 0 {
		w.Loader.Fail(&checkpoint.FormatError{
			File: w.Loader.Dir(), Tensor: name + ".weight_packed",
			Expected: fmt.Sprintf("inputs in whole groups of %d", int4Group), Found: fmt.Sprintf("%d inputs", s.Cols),
		})
		return
	}
	packed, scale := s, s
	packed.Tensor, packed.Cols = name+".weight_packed", s.Cols/int4Pack
	scale.Tensor, scale.Cols = name+".weight_scale", s.Cols/int4Group
	if s.Axis == checkpoint.ByColumns {
		packed.Lo, packed.Hi = s.Lo/int4Pack, s.Hi/int4Pack
		scale.Lo, scale.Hi = s.Lo/int4Group, s.Hi/int4Group
	}
	m.Data = w.place(w.Loader.Take(packed, kernels.I32))
	m.Scale = w.place(w.scales(scale, kernels.BF16, kernels.F16, kernels.F32))
	w.checkShape(name, s)
}

// checkShape compares the stored weight_shape with the model's.
func (w *Weights) checkShape(name string, s checkpoint.Slice) {
	stored := w.Loader.TakeVector(name+".weight_shape", 2, 0, 2, kernels.I64, kernels.I32)
	if stored.Host == nil {
		return
	}
	shape := checkpoint.Int64s(stored)
	if shape[0] != int64(s.Rows) || shape[1] != int64(s.Cols) {
		w.Loader.Fail(&checkpoint.FormatError{
			File: w.Loader.Dir(), Tensor: name + ".weight_shape",
			Expected: checkpoint.ShapeString(s.Rows, s.Cols), Found: checkpoint.ShapeString(int(shape[0]), int(shape[1])),
		})
	}
}
