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
	headsAtATime = 8
	groupWords   = 10
	mostPairs    = 64 // of a row and a head, in a block
	// mostShared is the shared memory that a block can have on every GPU since sm_80,
	// less what attend has besides.
	mostShared = 99<<10 - 4*mostPairs
	// What a block has, and blocks worth launching for a multiprocessor.
	attentionThreads   = 256
	blocksPerProcessor = 8
	// partialBytes bounds the partial results of one launch; longer passes take
	// their rows in turn.
	partialBytes = 256 << 20
)

type attentionParams struct {
	q, k, v, dst                         uint64
	views, tiles, slots, groups          uint64
	sums, stats                          uint64
	qStride, kStride, vStride, dstStride uint32
	heads, dim, valueDim, spans          uint32
	scale                                float32
	window                               uint32
	first, rows                          uint32
	tileCount, rowsAtATime               uint32
}

// headGroups is a device array of src/attention.cu's Group.
type headGroups struct {
	p       uintptr
	count   int
	atATime int // most heads of a group
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
	var g headGroups
	for _, kv := range order {
		for heads := byKV[kv]; len(heads) > 0; g.count++ {
			n := min(len(heads), headsAtATime)
			g.atATime = max(g.atATime, n)
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
	if !b.ok("attention", q.DType == kernels.BF16 && k.DType == kernels.BF16 && v.DType == kernels.BF16 && dst.DType == kernels.BF16,
		"%v by %v and %v into %v: all are bf16", q.DType, k.DType, v.DType, dst.DType) {
		return
	}
	pairs, shared := attentionBlock(min(q.Rows, tileRows)*g.atATime, int(p.dim), int(p.valueDim), k.Device == v.Device)
	if !b.ok("attention", p.dim%8 == 0 && p.valueDim%8 == 0 && p.dim <= maxKeyDim && p.valueDim <= maxValueDim && shared <= mostShared &&
		pairs >= g.atATime && rowsOf16Bytes(q) && rowsOf16Bytes(k) && rowsOf16Bytes(v) && rowsOf16Bytes(dst),
		"keys of %d and values of %d: keys up to %d and values up to %d in steps of 8, rows at multiples of 16 bytes, %d KiB of shared "+
			"memory for a span of both", p.dim, p.valueDim, maxKeyDim, maxValueDim, mostShared>>10) {
		return
	}
	spans := b.batch.spans * attentionSpan / spanPositions
	rowSpans := int(p.heads) * spans
	rowBytes := rowSpans * int(p.valueDim+2) * 4
	atATime := min(q.Rows, max(1, partialBytes/rowBytes))
	p.sums = uint64(b.workspace("attention", atATime*rowBytes))
	p.stats = p.sums + uint64(atATime*rowSpans)*uint64(p.valueDim)*4
	p.views, p.tiles, p.slots, p.groups = uint64(b.batch.views), uint64(b.batch.tiles), uint64(b.batch.lists), uint64(g.p)
	p.tileCount, p.rowsAtATime = uint32(mostTiles(b.batch.rows)), uint32(pairs/g.atATime)
	p.qStride, p.kStride, p.vStride, p.dstStride = uint32(q.Stride), uint32(k.Stride), uint32(v.Stride), uint32(dst.Stride)
	p.q, p.k, p.v, p.dst, p.spans = uint64(q.Device), uint64(k.Device), uint64(v.Device), uint64(dst.Device), uint32(spans)
	for lo := 0; lo < q.Rows; lo += atATime {
		n := min(atATime, q.Rows-lo)
		p.first, p.rows = uint32(lo), uint32(n)
		// Items of a tile and of what rows see alone, at most; blocks that find none
		// leave at once, and those that are too many for the device come late.
		items := spans*((n+int(p.rowsAtATime)-1)/int(p.rowsAtATime)) + 2*n
		run(b, "attention", "attend_"+strconv.Itoa(pairs), grid{
			x: min(items, blocksPerProcessor*b.device.Processors()/g.count+1), y: g.count, threads: attentionThreads, shared: shared,
		}, &p)
		run(b, "attention", "merge_spans", grid{x: n, y: int(p.heads), z: (int(p.valueDim) + 127) / 128, threads: attentionThreads}, &p)
	}
}

// attentionBlock is the pairs of a row and a head that a block takes at once, where
// so many are wanted, and its shared memory in bytes: src/attention.cu's Layout. The
// choice changes no bits.
func attentionBlock(want, dim, valueDim int, latent bool) (pairs, shared int) {
	pairs = 8
	for pairs < mostPairs && pairs < want {
		pairs *= 2
	}
	keyBytes := (dim+31)/32*64 + 16
	for ; ; pairs /= 2 {
		shared = pairs*max(keyBytes, 4*(spanPositions+4)) + spanPositions*keyBytes + pairs*(2*spanPositions+16)
		if !latent {
			shared += spanPositions * ((valueDim+15)/16*32 + 16)
		}
		if shared <= mostShared || pairs == 8 {
			return pairs, shared
		}
	}
}

// rowsOf16Bytes reports whether every row of t begins at a multiple of 16 bytes.
func rowsOf16Bytes(t kernels.Tensor) bool {
	return t.Device%16 == 0 && t.Stride*t.DType.Bytes()%16 == 0
}
