package cpu

import (
	"math"

	"github.com/octet-run/octet/kernels"
)

// AttentionSpan is how many positions attention reduces before it rescales.
// Spans begin at multiples of it, whatever the request.
const AttentionSpan = 256

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

// oracleAttend is attention for one row and head. q: [dim]; dst: [valueDim];
// key and value give the cache row of a slot.
func oracleAttend(dst, q []float32, slots []int32, lo int, scale float32, key, value func(slot int32) []float32) {
	total, most := float32(0), float32(math.Inf(-1))
	sum := make([]float32, len(dst))
	clear(dst)
	for first := lo / AttentionSpan * AttentionSpan; first < len(slots); first += AttentionSpan {
		var p [AttentionSpan]float32
		begin, end := max(first, lo), min(first+AttentionSpan, len(slots))
		m := float32(math.Inf(-1))
		for i := begin; i < end; i++ {
			p[i-first] = oracleDotF32(key(slots[i]), q) * scale
			m = max(m, p[i-first])
		}
		var lanes [16]float32
		clear(sum)
		for i := begin; i < end; i++ {
			p[i-first] = expf(p[i-first] - m)
			lanes[i%16] += p[i-first]
			oracleAxpy(sum, p[i-first], value(slots[i]))
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
