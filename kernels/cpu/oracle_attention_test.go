package cpu

import (
	"math"

	"github.com/octet-run/octet/kernels"
)

// oracleSlots lists the cache slots of what row i of s sees, by position.
func oracleSlots(b *kernels.Batch, s *kernels.Sequence, i int) []int32 {
	var slots []int32
	for p := range s.Committed {
		slots = append(slots, s.Blocks[p/kernels.BlockTokens]*kernels.BlockTokens+int32(p%kernels.BlockTokens))
	}
	own := append(append([]int32{}, s.Scratch...), b.Slots[s.First:s.First+s.Rows]...)
	for j, slot := range own {
		if s.Ancestors == nil && j <= i || s.Ancestors != nil && s.Ancestors[i]>>j&1 == 1 {
			slots = append(slots, slot)
		}
	}
	return slots
}

// oracleAttend is attention for one row and head over the slots from lo on.
// q: [dim]; dst: [valueDim]; k, v: the columns of the head in the cache.
func oracleAttend(dst, q []float32, slots []int32, lo int, scale float32, k, v kernels.Tensor) {
	keys := kernels.Matrix{Out: k.Rows, In: k.Cols, Data: k}
	value := make([]float32, v.Cols)
	total, most := float32(0), float32(math.Inf(-1))
	sum := make([]float32, len(dst))
	clear(dst)
	for first := lo / AttentionSpan * AttentionSpan; first < len(slots); first += AttentionSpan {
		var p [AttentionSpan]float32
		begin, end := max(first, lo), min(first+AttentionSpan, len(slots))
		m := float32(math.Inf(-1))
		for i := begin; i < end; i++ {
			p[i-first] = oracleDot(keys, int(slots[i]), q) * scale
			m = max(m, p[i-first])
		}
		var lanes [16]float32
		clear(sum)
		for i := begin; i < end; i++ {
			p[i-first] = expf(p[i-first] - m)
			lanes[i%16] += p[i-first]
			for d := range value {
				value[d] = loadF32(v, int(slots[i]), d)
			}
			oracleAxpy(sum, p[i-first], value)
		}
		l := sum16(&lanes)
		if first <= lo { // the first span
			total, most = l, m
			copy(dst, sum)
			continue
		}
		old, now := float32(1), float32(1)
		if m <= most {
			now = expf(m - most)
		} else {
			old = expf(most - m)
			most = m
		}
		total = fma32(l, now, total*old)
		for d := range dst {
			dst[d] = fma32(sum[d], now, dst[d]*old)
		}
	}
	inv := 1 / total
	for d := range dst {
		dst[d] *= inv
	}
}

// oracleAttention is Attention, and LatentAttention with v a part of k.
func oracleAttention(b *kernels.Batch, dst, q, k, v kernels.Tensor, h kernels.Heads, scale float32, window int) {
	for n := range b.Sequences {
		s := &b.Sequences[n]
		for i := range s.Rows {
			slots := oracleSlots(b, s, i)
			lo := 0
			if window > 0 {
				lo = max(0, len(slots)-window)
			}
			for head, kv := range h.KVOf {
				kv := int(kv)
				oracleAttend(dst.F32Row(s.First + i)[head*h.ValueDim:(head+1)*h.ValueDim], q.F32Row(s.First + i)[head*h.Dim:(head+1)*h.Dim],
					slots, lo, scale, k.ColRange(kv*h.Dim, (kv+1)*h.Dim), v.ColRange(kv*h.ValueDim, (kv+1)*h.ValueDim))
			}
		}
	}
}
