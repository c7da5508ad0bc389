//go:build cuda

package cuda

import (
	"fmt"
	"strconv"
	"unsafe"

	"github.com/octet-run/octet/kernels"
)

// The bounds of src/attention.cu.
const (
	maxKeyDim    = 576
	maxValueDim  = 512
	headsAtATime = 4
	groupWords   = 10
	// partialBytes bounds the partial results of one launch; longer passes take
	// their rows in turn.
	partialBytes = 256 << 20
)

type attentionParams struct {
	q, k, v, dst                         uint64
	views, slots, groups, partials       uint64
	qStride, kStride, vStride, dstStride uint32
	heads, dim, valueDim, spans          uint32
	scale                                float32
	window                               uint32
}

// headGroups is a device array of src/attention.cu's Group.
type headGroups struct {
	p       uintptr
	count   int
	atATime int // heads a kernel takes: 1, 2 or 4
}

// groupHeads puts query heads of one key head together.
func (b *Backend) groupHeads(kvOf []int32) headGroups {
	key := fmt.Sprint(kvOf)
	if g, ok := b.groups[key]; ok {
		return g
	}
	byKV := map[int32][]int32{}
	var order []int32
	for head, kv := range kvOf {
		if byKV[kv] == nil {
			order = append(order, kv)
		}
		byKV[kv] = append(byKV[kv], int32(head))
	}
	var words []int32
	g := headGroups{atATime: 1}
	for _, kv := range order {
		for heads := byKV[kv]; len(heads) > 0; g.count++ {
			n := min(len(heads), headsAtATime)
			for g.atATime < n {
				g.atATime *= 2
			}
			words = append(words, kv, int32(n))
			for i := range groupWords - 2 {
				words = append(words, heads[min(i, n-1)])
			}
			heads = heads[n:]
		}
	}
	p, err := b.device.Alloc(4 * len(words))
	if err == nil {
		err = b.device.Write(p, unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 4*len(words)))
	}
	b.fail(err)
	g.p = p
	b.groups[key] = g
	return g
}

// Attention writes softmax(scale q·k) v for every row over what Batch lets it see.
func (b *Backend) Attention(dst, q kernels.Tensor, kv kernels.KV, h kernels.Heads, scale float32, window int) {
	if !b.ok("Attention", q.Cols == h.Query*h.Dim && dst.Cols == h.Query*h.ValueDim && dst.Rows == q.Rows && q.Rows <= b.batch.rows &&
		kv.K.Cols == h.KV*h.Dim && kv.V.Cols == h.KV*h.ValueDim && len(h.KVOf) == h.Query, "q [%d, %d], dst [%d, %d], keys of %d and values "+
		"of %d for %d heads over %d", q.Rows, q.Cols, dst.Rows, dst.Cols, kv.K.Cols, kv.V.Cols, h.Query, h.KV) || dst.Empty() {
		return
	}
	b.attend(dst, q, kv.K, kv.V, b.groupHeads(h.KVOf), attentionParams{
		heads: uint32(h.Query), dim: uint32(h.Dim), valueDim: uint32(h.ValueDim), scale: scale, window: uint32(max(window, 0)),
	})
}

// LatentAttention is absorbed MLA: one key head, whose values are the first
// `latent` columns of the keys.
func (b *Backend) LatentAttention(dst, q kernels.Tensor, kv kernels.KV, heads, latent, rope int, scale float32) {
	dim := latent + rope
	if !b.ok("LatentAttention", q.Cols == heads*dim && dst.Cols == heads*latent && dst.Rows == q.Rows && q.Rows <= b.batch.rows &&
		kv.K.Cols == dim, "q [%d, %d], dst [%d, %d], keys of %d for %d heads of %d+%d", q.Rows, q.Cols, dst.Rows, dst.Cols, kv.K.Cols,
		heads, latent, rope) || dst.Empty() {
		return
	}
	b.attend(dst, q, kv.K, kv.K, b.groupHeads(make([]int32, heads)), attentionParams{
		heads: uint32(heads), dim: uint32(dim), valueDim: uint32(latent), scale: scale,
	})
}

func (b *Backend) attend(dst, q, k, v kernels.Tensor, g headGroups, p attentionParams) {
	if !b.ok("attention", p.dim%8 == 0 && p.dim <= maxKeyDim && p.valueDim%2 == 0 && p.valueDim <= maxValueDim && k.Stride%8 == 0 &&
		k.Device%16 == 0 && q.DType == kernels.BF16 && k.DType == kernels.BF16 && v.DType == kernels.BF16,
		"heads of %d and %d values of %v: keys up to %d in steps of 8, values up to %d, bf16", p.dim, p.valueDim, k.DType, maxKeyDim,
		maxValueDim) {
		return
	}
	spans := b.batch.spans
	rowBytes := int(p.heads) * spans * int(p.valueDim+2) * 4
	atATime := min(q.Rows, max(1, partialBytes/rowBytes))
	p.partials = uint64(b.workspace("attention", atATime*rowBytes))
	p.slots, p.groups = uint64(b.batch.lists), uint64(g.p)
	p.qStride, p.kStride, p.vStride, p.dstStride = uint32(q.Stride), uint32(k.Stride), uint32(v.Stride), uint32(dst.Stride)
	p.k, p.v, p.spans = uint64(k.Device), uint64(v.Device), uint32(spans)
	for lo := 0; lo < q.Rows; lo += atATime {
		n := min(atATime, q.Rows-lo)
		p.q, p.dst = uint64(q.RowRange(lo, lo+n).Device), uint64(dst.RowRange(lo, lo+n).Device)
		p.views = uint64(b.batch.views) + uint64(4*viewWords*lo)
		run(b, "attention", "attend_"+strconv.Itoa(g.atATime), grid{x: n, y: g.count, z: spans, threads: attentionSpan}, &p)
		run(b, "attention", "merge_spans", grid{x: n, y: int(p.heads), threads: 128}, &p)
	}
}
