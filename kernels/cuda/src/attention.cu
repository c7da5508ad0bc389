// Attention over a paged cache, split by absolute position into spans of 256:
// attend makes one partial result a (row, group of heads, span), merge puts the
// spans of a row together in order. So a row's bits depend on what it sees and
// not on how many rows, pages or other requests there are.
#include "device.cuh"

constexpr u32 SPAN = 256, PAGE = 16;

// What one row sees, in order of position: `committed` positions through the
// page table at `pages`, then `tail` cache slots listed at `tail_at`.
struct View {
	u32 committed, pages, tail_at, tail;
};

// Query heads that share a key head; unused places repeat the last.
struct Group {
	u32 kv, count, head[8];
};

struct Attention {
	const u16 *q, *k, *v;
	u16 *dst;
	const View *views;   // of the first row
	const i32 *slots;    // page tables and tails
	const Group *groups;
	float *partials; // [row][head][span][value_dim + 2]: weighted sum, maximum, sum of weights
	u32 q_stride, k_stride, v_stride, dst_stride;
	u32 heads, dim, value_dim, spans;
	float scale;
	u32 window; // 0: everything
};

DEVICE u64 slot_of(const Attention &a, const View &view, u32 p)
{
	if (p < view.committed)
		return (u64)a.slots[view.pages + p / PAGE] * PAGE + p % PAGE;
	return a.slots[view.tail_at + p - view.committed];
}

DEVICE u32 first_seen(const Attention &a, u32 length) { return a.window && length > a.window ? length - a.window : 0; }

// Dot products of one key with the queries of NH heads; q is [NH][dim].
template <u32 NH> DEVICE void dot_heads(const u16 *key, const float *q, u32 dim, float (&sum)[NH])
{
#pragma unroll
	for (u32 h = 0; h < NH; h++)
		sum[h] = 0;
	for (u32 base = 0; base < dim; base += 32) {
		u32x4 k[4]; // four loads under way at once
#pragma unroll
		for (u32 j = 0; j < 4; j++)
			if (u32 c = base + j * 8; c < dim)
				k[j] = *(const u32x4 *)(key + c);
#pragma unroll
		for (u32 j = 0; j < 4; j++)
			if (u32 c = base + j * 8; c < dim) {
				float v[8] = {bf16_low(k[j].x), bf16_high(k[j].x), bf16_low(k[j].y), bf16_high(k[j].y),
					      bf16_low(k[j].z), bf16_high(k[j].z), bf16_low(k[j].w), bf16_high(k[j].w)};
#pragma unroll
				for (u32 h = 0; h < NH; h++)
#pragma unroll
					for (u32 i = 0; i < 8; i++)
						sum[h] = fma_rn(v[i], q[h * dim + c + i], sum[h]);
			}
	}
}

constexpr u32 MAX_DIM = 576;

// grid: (row, group, span), 256 threads: one a position for the scores, then one
// a pair of value columns and part of the span for the weighted sum.
template <u32 NH> DEVICE void attend(const Attention &a)
{
	__shared__ float q[NH * MAX_DIM], weights[NH][SPAN], sums[2 * NH * SPAN];
	__shared__ u64 rows[SPAN];
	const View view = a.views[bid()];
	const Group &group = a.groups[bid_y()];
	u32 length = view.committed + view.tail, first = bid_z() * SPAN, lowest = first_seen(a, length);
	if (first >= length || first + SPAN <= lowest)
		return;
#pragma unroll
	for (u32 h = 0; h < NH; h++)
		for (u32 i = tid(); i < a.dim; i += SPAN)
			q[h * a.dim + i] = bf16_to_float(a.q[(u64)bid() * a.q_stride + group.head[h] * a.dim + i]);
	u32 p = first + tid();
	bool seen = p < length && p >= lowest;
	u64 slot = seen ? slot_of(a, view, p) : 0;
	rows[tid()] = slot * a.v_stride + group.kv * a.value_dim;
	sync_block();
	float score[NH];
	if (seen)
		dot_heads<NH>(a.k + slot * a.k_stride + group.kv * a.dim, q, a.dim, score);
#pragma unroll
	for (u32 h = 0; h < NH; h++)
		weights[h][tid()] = seen ? score[h] * a.scale : -__builtin_inff();
	sync_block();

	// A warp a head: maximum, weights, their sum.
	for (u32 h = warp(); h < NH; h += SPAN / 32) {
		float m = -__builtin_inff(), l = 0;
		for (u32 i = lane(); i < SPAN; i += 32)
			m = weights[h][i] > m ? weights[h][i] : m;
		m = warp_max(m);
		for (u32 i = lane(); i < SPAN; i += 32) {
			float w = weights[h][i];
			w = w == -__builtin_inff() ? 0 : exp_poly(w - m);
			weights[h][i] = w;
			l += w;
		}
		l = warp_sum(l);
		if (lane() == 0 && h < group.count) {
			float *out = a.partials + (((u64)bid() * a.heads + group.head[h]) * a.spans + bid_z()) * (a.value_dim + 2);
			out[a.value_dim] = m;
			out[a.value_dim + 1] = l;
		}
	}
	sync_block();

	u32 pairs = a.value_dim / 2, parts = SPAN / pairs, part = tid() / pairs, column = tid() % pairs * 2;
	if (part < parts) {
		u32 size = ((SPAN + parts - 1) / parts + 7) & ~7u, begin = part * size, end = begin + size;
		if (end > SPAN)
			end = SPAN;
		if (end > length - first)
			end = length - first;
		float low[NH] = {}, high[NH] = {};
		for (u32 base = begin; base < end; base += 8) {
			u32 pair[8];
#pragma unroll
			for (u32 j = 0; j < 8; j++)
				pair[j] = base + j < end ? *(const u32 *)(a.v + rows[base + j] + column) : 0;
#pragma unroll
			for (u32 j = 0; j < 8; j++)
#pragma unroll
				for (u32 h = 0; h < NH; h++) {
					low[h] = fma_rn(weights[h][base + j], bf16_low(pair[j]), low[h]);
					high[h] = fma_rn(weights[h][base + j], bf16_high(pair[j]), high[h]);
				}
		}
#pragma unroll
		for (u32 h = 0; h < NH; h++) {
			sums[(part * NH + h) * a.value_dim + column] = low[h];
			sums[(part * NH + h) * a.value_dim + column + 1] = high[h];
		}
	}
	sync_block();
	for (u32 i = tid(); i < group.count * a.value_dim; i += SPAN) {
		u32 h = i / a.value_dim, d = i % a.value_dim;
		float sum = 0;
		for (u32 s = 0; s < parts; s++)
			sum = add_rn(sum, sums[(s * NH + h) * a.value_dim + d]);
		a.partials[(((u64)bid() * a.heads + group.head[h]) * a.spans + bid_z()) * (a.value_dim + 2) + d] = sum;
	}
}

KERNEL void __launch_bounds__(256) attend_1(Attention a) { attend<1>(a); }
KERNEL void __launch_bounds__(256) attend_2(Attention a) { attend<2>(a); }
KERNEL void __launch_bounds__(256) attend_4(Attention a) { attend<4>(a); }

// grid: (row, head).
KERNEL void merge_spans(Attention a)
{
	const View view = a.views[bid()];
	u32 length = view.committed + view.tail, begin = first_seen(a, length) / SPAN, end = (length + SPAN - 1) / SPAN;
	const float *partial = a.partials + ((u64)bid() * a.heads + bid_y()) * a.spans * (a.value_dim + 2);
	float most = -__builtin_inff(), total = 0;
	for (u32 s = begin; s < end; s++) {
		float m = partial[s * (a.value_dim + 2) + a.value_dim];
		most = m > most ? m : most;
	}
	for (u32 s = begin; s < end; s++) {
		const float *p = partial + s * (a.value_dim + 2) + a.value_dim;
		total = fma_rn(p[1], exp_poly(p[0] - most), total);
	}
	for (u32 d = tid(); d < a.value_dim; d += threads()) {
		float sum = 0;
		for (u32 s = begin; s < end; s++) {
			const float *p = partial + s * (a.value_dim + 2);
			sum = fma_rn(p[d], exp_poly(p[a.value_dim] - most), sum);
		}
		a.dst[(u64)bid() * a.dst_stride + bid_y() * a.value_dim + d] = float_to_bf16(sum / total);
	}
}
