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

// ok reports whether the arguments of op are usable; otherwise Sync gets the error.
func (b *Backend) ok(op string, fits bool, format string, args ...any) bool {
	if !fits {
		b.fail(&ShapeError{Op: op, Detail: fmt.Sprintf(format, args...)})
	}
	return fits
}

// same reports whether all tensors are F32 of the shape of the first.
func (b *Backend) same(op string, first kernels.Tensor, rest ...kernels.Tensor) bool {
	for _, t := range rest {
		if !b.ok(op, t.Rows == first.Rows && t.Cols == first.Cols && t.DType == first.DType,
			"%v [%d, %d] beside %v [%d, %d]", t.DType, t.Rows, t.Cols, first.DType, first.Rows, first.Cols) {
			return false
		}
	}
	return b.ok(op, first.DType == kernels.F32, "activations are %v, not f32", first.DType)
}
