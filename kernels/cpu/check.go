package cpu

import (
	"fmt"

	"github.com/octet-run/octet/kernels"
)

// ShapeError reports arguments that do not fit together: a bug in the caller.
type ShapeError struct {
	Op     string // method of Backend
	Detail string
}

func (e *ShapeError) Error() string { return "cpu: " + e.Op + ": " + e.Detail }

// misfit keeps a shape error of op for Sync. Callers check first, so that the
// arguments are boxed on failure only.
func (b *Backend) misfit(op, format string, args ...any) {
	b.fail(&ShapeError{Op: op, Detail: fmt.Sprintf(format, args...)})
}

// same reports whether all tensors are F32 of the shape of the first.
func (b *Backend) same(op string, first kernels.Tensor, rest ...kernels.Tensor) bool {
	for _, t := range rest {
		if t.Rows != first.Rows || t.Cols != first.Cols || t.DType != first.DType {
			b.misfit(op, "%v [%d, %d] beside %v [%d, %d]", t.DType, t.Rows, t.Cols, first.DType, first.Rows, first.Cols)
			return false
		}
	}
	if first.DType != kernels.F32 {
		b.misfit(op, "activations are %v, not f32", first.DType)
		return false
	}
	return true
}

// groups reports whether rows of cols values are whole groups of a norm weight.
func (b *Backend) groups(op string, cols int, weight kernels.Tensor) bool {
	if weight.Cols == 0 || cols%weight.Cols != 0 {
		b.misfit(op, "rows of %d values, weight of %d", cols, weight.Cols)
		return false
	}
	return true
}
