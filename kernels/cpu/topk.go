package cpu

import (
	"math"

	"github.com/octet-run/octet/kernels"
)

// TopK writes the k largest of each row, largest first, the lower index first on
// ties. A row of fewer than k values is filled up with -Inf and id -1.
func (b *Backend) TopK(values, ids, x kernels.Tensor, k int) {
	if k <= 0 || values.Rows != x.Rows || ids.Rows != x.Rows ||
		values.Cols != k || ids.Cols != k {
		b.misfit("TopK", "k = %d, values [%d, %d], ids [%d, %d] for %d rows", k, values.Rows, values.Cols, ids.Rows, ids.Cols, x.Rows)
		return
	}
	for t := range x.Rows {
		topK(values.F32Row(t), ids.I32Row(t), x.F32Row(t))
	}
}

// topK keeps the best so far sorted in values. Most elements of a long row fail
// the one comparison with the worst of them.
func topK(values []float32, ids []int32, x []float32) {
	negInf := float32(math.Inf(-1))
	for i := range values {
		values[i], ids[i] = negInf, -1
	}
	last := len(values) - 1
	for i, v := range x {
		if !(v > values[last]) && (ids[last] >= 0 || v != v) {
			continue
		}
		j := last
		for ; j > 0 && (v > values[j-1] || ids[j-1] < 0); j-- {
			values[j], ids[j] = values[j-1], ids[j-1]
		}
		values[j], ids[j] = v, int32(i)
	}
}
