package cpu

import (
	"math"

	"github.com/octet-run/octet/kernels"
)

// TopK writes the k largest of each row, largest first, the lower index first on
// ties. A row of fewer than k values is filled up with -Inf and id -1. NaN is
// never among them.
func (b *Backend) TopK(values, ids, x kernels.Tensor, k int) {
	if k <= 0 || values.Rows != x.Rows || ids.Rows != x.Rows ||
		values.Cols != k || ids.Cols != k {
		b.misfit("TopK", "k = %d, values [%d, %d], ids [%d, %d] for %d rows", k, values.Rows, values.Cols, ids.Rows, ids.Cols, x.Rows)
		return
	}
	for t := range x.Rows {
		b.topK(values.F32Row(t), ids.I32Row(t), x.F32Row(t))
	}
}

// topKBlock is how many values topK dismisses by their maximum.
const topKBlock = 128

// topK keeps the best so far sorted in values. Most blocks of a long row have
// nothing above the worst of them.
func (r *routines) topK(values []float32, ids []int32, x []float32) {
	for i := range values {
		values[i], ids[i] = float32(math.Inf(-1)), -1
	}
	last := len(values) - 1
	for lo := 0; lo < len(x); lo += topKBlock {
		block := x[lo:min(lo+topKBlock, len(x))]
		if ids[last] >= 0 && !(r.max(block) > values[last]) {
			continue
		}
		for i, v := range block {
			if v > values[last] || ids[last] < 0 && v == v {
				insert(values, ids, v, int32(lo+i))
			}
		}
	}
}

// insert puts v in order before the smaller values; the last one is dropped.
func insert(values []float32, ids []int32, v float32, id int32) {
	j := len(values) - 1
	for ; j > 0 && (v > values[j-1] || ids[j-1] < 0); j-- {
		values[j], ids[j] = values[j-1], ids[j-1]
	}
	values[j], ids[j] = v, id
}
