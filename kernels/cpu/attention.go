package cpu

import "github.com/octet-run/octet/kernels"

// Attention writes softmax(scale q·k) v for every row over what Batch lets it
// see. window > 0 limits it to the last window positions, itself included.
func (b *Backend) Attention(dst, q kernels.Tensor, kv kernels.KV, h kernels.Heads, scale float32, window int) {
	if !b.ok("Attention", q.Cols == h.Query*h.Dim && dst.Cols == h.Query*h.ValueDim && dst.Rows == q.Rows &&
		kv.K.Cols == h.KV*h.Dim && kv.V.Cols == h.KV*h.ValueDim && len(h.KVOf) == h.Query,
		"q [%d, %d], dst [%d, %d], keys of %d and values of %d for %d heads over %d", q.Rows, q.Cols, dst.Rows, dst.Cols,
		kv.K.Cols, kv.V.Cols, h.Query, h.KV) {
		return
	}
	for head, kvHead := range h.KVOf {
		lo := int(kvHead)
		b.attendHead(
			dst.ColRange(head*h.ValueDim, (head+1)*h.ValueDim), q.ColRange(head*h.Dim, (head+1)*h.Dim),
			kv.K.ColRange(lo*h.Dim, (lo+1)*h.Dim), kv.V.ColRange(lo*h.ValueDim, (lo+1)*h.ValueDim), scale, window)
	}
}

// LatentAttention is absorbed MLA: q is [t, heads*(latent+rope)], kv.K rows are
// latent|rope, dst is [t, heads*latent], the weighted sum of latents.
func (b *Backend) LatentAttention(dst, q kernels.Tensor, kv kernels.KV, heads, latent, rope int, scale float32) {
	dim := latent + rope
	if !b.ok("LatentAttention", q.Cols == heads*dim && dst.Cols == heads*latent && dst.Rows == q.Rows && kv.K.Cols == dim,
		"q [%d, %d], dst [%d, %d], keys of %d for %d heads of %d+%d", q.Rows, q.Cols, dst.Rows, dst.Cols,
		kv.K.Cols, heads, latent, rope) {
		return
	}
	for head := range heads {
		b.attendHead(dst.ColRange(head*latent, (head+1)*latent), q.ColRange(head*dim, (head+1)*dim),
			kv.K, kv.K.ColRange(0, latent), scale, 0)
	}
}

func (b *Backend) attendHead(dst, q, k, v kernels.Tensor, scale float32, window int) {
	if dst.Empty() {
		return
	}
	key := make([]float32, k.Cols)
	value := make([]float32, v.Cols)
	for n := range b.batch.Sequences {
		s := &b.batch.Sequences[n]
		for i := range s.Rows {
			slots := oracleSlots(b.batch, s, i)
			lo := 0
			if window > 0 {
				lo = max(0, len(slots)-window)
			}
			oracleAttend(dst.F32Row(s.First+i), q.F32Row(s.First+i), slots, lo, scale,
				func(slot int32) []float32 { widen(key, k, int(slot)); return key },
				func(slot int32) []float32 { widen(value, v, int(slot)); return value })
		}
	}
}
