// What works row by row: norms, sums, copies, rotary embeddings, the cache,
// routing, top-k. Activations are bf16; widths are in elements.
#include "norm.cuh"

struct Matrix2D {
	void *data;
	u32 rows, cols, stride; // elements
	u32 type;
};
DEVICE u16 *bf16_row(const Matrix2D &m, u32 r) { return (u16 *)m.data + (u64)r * m.stride; }
DEVICE float *f32_row(const Matrix2D &m, u32 r) { return (float *)m.data + (u64)r * m.stride; }
DEVICE i32 *i32_row(const Matrix2D &m, u32 r) { return (i32 *)m.data + (u64)r * m.stride; }

// dst[t] = table[tokens[t] - first], zeros where that is not in the table.
struct Embedding {
	Matrix2D dst, table;
	const i32 *tokens;
	i32 first;
	u32 pad;
};
KERNEL void embed(Embedding e)
{
	let_next_start();
	i32 r = e.tokens[bid()] - e.first;
	bool mine = r >= 0 && r < (i32)e.table.rows;
	for (u32 i = tid(); i < e.dst.cols; i += threads())
		bf16_row(e.dst, bid())[i] =
			mine ? float_to_bf16(load_as_float(e.table.data, (u64)r * e.table.stride + i, e.table.type)) : 0;
}

// Normalises group bid_y() of row bid(): `cols` values. With a residual, x is
// added to it first and the sum, rounded, is the new residual and is normalised.
struct Norm {
	Matrix2D dst, x, residual;
	const void *weight;
	InverseCols inverse_cols;
	u32 weight_type, cols;
	float eps;
	u32 whole_words; // rows and weight are bf16 in whole groups of 16 bytes
};
constexpr u32 MAX_NORM = 16384;

KERNEL void __launch_bounds__(1024) rms_norm(Norm n)
{
	let_next_start();
	alignas(16) __shared__ u32 row[row_words(MAX_NORM / 2)];
	__shared__ float parts[MAX_SEGMENTS];
	u32 at = bid_y() * n.cols, padded = (n.cols + NORM_SEGMENT - 1) & ~(NORM_SEGMENT - 1);
	const u16 *x = bf16_row(n.x, bid()) + at;
	u16 *residual = n.residual.data ? bf16_row(n.residual, bid()) + at : nullptr, *dst = bf16_row(n.dst, bid()) + at;
	bool even = n.whole_words; // rows of whole groups of eight values: one load each
	for (u32 i = tid() * 8; even && i < padded; i += threads() * 8) {
		u32x4 v = {0, 0, 0, 0};
		if (i < n.cols)
			v = *(const u32x4 *)(x + i);
		if (residual && i < n.cols) {
			u32x4 r = *(const u32x4 *)(residual + i);
			v = u32x4{add_pair(r.x, v.x), add_pair(r.y, v.y), add_pair(r.z, v.z), add_pair(r.w, v.w)};
			*(u32x4 *)(residual + i) = v;
		}
		*(u32x4 *)(row + row_word(i / 2)) = v;
	}
	for (u32 i = tid(); !even && i < padded; i += threads()) {
		u16 v = i < n.cols ? x[i] : 0;
		if (residual && i < n.cols) {
			v = float_to_bf16(add_rn(bf16_to_float(residual[i]), bf16_to_float(v)));
			residual[i] = v;
		}
		((u16 *)row)[2 * row_word(i / 2) + i % 2] = v;
	}
	sync_block();
	float inv = row_inverse_rms(row, n.cols, n.inverse_cols, n.eps, parts);
	for (u32 i = tid() * 8; even && i < n.cols; i += threads() * 8) {
		u32x4 v = *(const u32x4 *)(row + row_word(i / 2)), w = *(const u32x4 *)((const u16 *)n.weight + i);
		*(u32x4 *)(dst + i) = u32x4{norm_pair(v.x, w.x, inv), norm_pair(v.y, w.y, inv), norm_pair(v.z, w.z, inv), norm_pair(v.w, w.w, inv)};
	}
	for (u32 i = tid(); !even && i < n.cols; i += threads()) {
		float v = bf16_to_float(((u16 *)row)[2 * row_word(i / 2) + i % 2]);
		dst[i] = float_to_bf16(mul_rn(mul_rn(v, inv), load_as_float(n.weight, i, n.weight_type)));
	}
}

KERNEL void add_rows(Matrix2D dst, Matrix2D a, Matrix2D b)
{
	let_next_start();
	for (u32 i = bid() * threads() + tid(); i < dst.cols; i += blocks() * threads())
		bf16_row(dst, bid_y())[i] =
			float_to_bf16(add_rn(bf16_to_float(bf16_row(a, bid_y())[i]), bf16_to_float(bf16_row(b, bid_y())[i])));
}

KERNEL void swiglu(Matrix2D dst, Matrix2D gate, Matrix2D up)
{
	let_next_start();
	for (u32 i = bid() * threads() + tid(); i < dst.cols; i += blocks() * threads()) {
		float g = bf16_to_float(bf16_row(gate, bid_y())[i]), u = bf16_to_float(bf16_row(up, bid_y())[i]);
		bf16_row(dst, bid_y())[i] = float_to_bf16(g / (1 + exp_poly(-g)) * u);
	}
}

// Copies rows of `bytes` bytes, 2 at a time: dst[to(r)] = src[from(r)].
// A null index is the row itself.
struct CopyRows {
	u8 *dst;
	const u8 *src;
	u64 dst_stride, src_stride; // bytes
	const i32 *to, *from;
	u32 bytes, count;
};
DEVICE void copy_row(const CopyRows &c, u32 r)
{
	u16 *d = (u16 *)(c.dst + (c.to ? c.to[r] : (i32)r) * c.dst_stride);
	const u16 *s = (const u16 *)(c.src + (c.from ? c.from[r] : (i32)r) * c.src_stride);
	for (u32 i = bid() * threads() + tid(); i < c.bytes / 2; i += blocks() * threads())
		d[i] = s[i];
}
KERNEL void copy_rows(CopyRows c)
{
	let_next_start();
	copy_row(c, bid_y());
}
// Keys and values: grid z takes one of the two.
KERNEL void store_rows(CopyRows k, CopyRows v)
{
	let_next_start();
	copy_row(bid_z() ? v : k, bid_y());
}

// Moves cache rows in order, as one block: a later move may read what an earlier
// one wrote.
KERNEL void move_rows(CopyRows c)
{
	let_next_start();
	for (u32 r = 0; r < c.count; r++) {
		u16 *d = (u16 *)(c.dst + c.to[r] * c.dst_stride);
		const u16 *s = (const u16 *)(c.src + c.from[r] * c.src_stride);
		for (u32 i = tid(); i < c.bytes / 2; i += threads())
			d[i] = s[i];
		sync_block();
	}
}

struct Rotation {
	Matrix2D x;
	const float *cos, *sin; // [positions, stride]
	const i32 *positions;
	u32 table_stride, head_dim, offset, half;
	u32 next, step; // from the first of a pair to the second, and to the next pair
};
// grid: (row, head); a thread a pair.
KERNEL void rotate(Rotation r)
{
	let_next_start();
	const float *cos = r.cos + (u64)r.positions[bid()] * r.table_stride, *sin = r.sin + (u64)r.positions[bid()] * r.table_stride;
	u16 *head = bf16_row(r.x, bid()) + bid_y() * r.head_dim + r.offset;
	for (u32 i = tid(); i < r.half; i += threads()) {
		float a = bf16_to_float(head[i * r.step]), b = bf16_to_float(head[i * r.step + r.next]);
		head[i * r.step] = float_to_bf16(add_rn(mul_rn(a, cos[i]), -mul_rn(b, sin[i])));
		head[i * r.step + r.next] = float_to_bf16(add_rn(mul_rn(b, cos[i]), mul_rn(a, sin[i])));
	}
}

// The better of two candidates: the larger value, then the lower index.
DEVICE bool better(float v, i32 i, float w, i32 j) { return v > w || (v == w && (u32)i < (u32)j); }

DEVICE void best_of_warp(float &v, i32 &i)
{
	for (u32 m = 16; m; m >>= 1) {
		float w = shuffle_xor(v, m);
		i32 j = (i32)shuffle_xor((u32)i, m);
		if (better(w, j, v, i)) {
			v = w;
			i = j;
		}
	}
}

constexpr float LOWEST = -__builtin_inff();

// The best over a block of those after (last, last_index) in rank order; every
// thread gets it. at(i) yields value i.
template <typename At> DEVICE void next_best(u32 n, At at, float last, i32 last_index, float &value, i32 &index)
{
	__shared__ float values[32];
	__shared__ i32 indices[32];
	value = LOWEST;
	index = -1;
	for (u32 i = tid(); i < n; i += threads()) {
		float v = at(i);
		if ((last_index < 0 || better(last, last_index, v, i)) && better(v, i, value, index)) {
			value = v;
			index = i;
		}
	}
	best_of_warp(value, index);
	sync_block();
	if (lane() == 0) {
		values[warp()] = value;
		indices[warp()] = index;
	}
	sync_block();
	value = lane() < threads() / 32 ? values[lane()] : LOWEST;
	index = lane() < threads() / 32 ? indices[lane()] : -1;
	best_of_warp(value, index);
}

// values, ids: the k largest of a row, in order. One block a row.
KERNEL void __launch_bounds__(1024) top_k(Matrix2D values, Matrix2D ids, Matrix2D x, u64 k)
{
	let_next_start();
	float last = 0;
	i32 last_index = -1;
	u32 found = 0;
	for (; found < k && found < x.cols; found++) {
		float v;
		i32 i;
		next_best(x.cols, [&](u32 c) { return load_as_float(x.data, (u64)bid() * x.stride + c, x.type); }, last, last_index, v, i);
		if (i < 0)
			break;
		if (tid() == 0) {
			f32_row(values, bid())[found] = v;
			i32_row(ids, bid())[found] = i;
		}
		last = v;
		last_index = i;
	}
	for (u32 i = found + tid(); i < k; i += threads()) {
		f32_row(values, bid())[i] = LOWEST;
		i32_row(ids, bid())[i] = -1;
	}
}

DEVICE float block_sum(float v)
{
	__shared__ float sums[32];
	v = warp_sum(v);
	sync_block();
	if (lane() == 0)
		sums[warp()] = v;
	sync_block();
	return warp_sum(lane() < threads() / 32 ? sums[lane()] : 0);
}
DEVICE float block_max(float v)
{
	__shared__ float most[32];
	v = warp_max(v);
	sync_block();
	if (lane() == 0)
		most[warp()] = v;
	sync_block();
	return warp_max(lane() < threads() / 32 ? most[lane()] : LOWEST);
}

KERNEL void __launch_bounds__(1024) log_sum_exp(Matrix2D dst, Matrix2D x)
{
	let_next_start();
	float m = LOWEST, sum = 0;
	for (u32 i = tid(); i < x.cols; i += threads()) {
		float v = load_as_float(x.data, (u64)bid() * x.stride + i, x.type);
		m = v > m ? v : m;
	}
	m = block_max(m);
	for (u32 i = tid(); i < x.cols; i += threads())
		sum += exp_poly(load_as_float(x.data, (u64)bid() * x.stride + i, x.type) - m);
	sum = block_sum(sum);
	if (tid() == 0)
		f32_row(dst, bid())[0] = m == LOWEST ? m : m + log_fast(sum);
}

struct Routing {
	Matrix2D ids, weights, logits;
	const void *bias;
	u32 bias_type, experts, top_k, groups, top_groups;
	u32 sigmoid, normalize;
	float scale;
};
constexpr u32 MAX_EXPERTS = 1024, MAX_GROUPS = 64, MAX_CHOSEN = 64;

// Puts all but the best groups out of reach. A group's score is the sum of its
// two best.
DEVICE void close_groups(float *biased, float *scores, u32 experts, u32 groups, u32 keep)
{
	u32 size = experts / groups;
	for (u32 g = tid(); g < groups; g += threads()) {
		float best = LOWEST, second = LOWEST;
		for (u32 i = g * size; i < (g + 1) * size; i++) {
			float v = biased[i];
			if (v > best) {
				second = best;
				best = v;
			} else if (v > second) {
				second = v;
			}
		}
		scores[g] = best + (size == 1 ? 0 : second);
	}
	sync_block();
	for (u32 g = tid(); g < groups; g += threads()) {
		u32 ahead = 0;
		for (u32 h = 0; h < groups; h++)
			ahead += scores[h] > scores[g] || (scores[h] == scores[g] && h < g);
		if (ahead >= keep)
			for (u32 i = g * size; i < (g + 1) * size; i++)
				biased[i] = LOWEST;
	}
	sync_block();
}

// A number that orders as v does, above 0.
DEVICE u32 order_of(float v)
{
	u32 bits = as_bits(v + 0.0f); // one zero
	return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// The best experts of bid()'s row, in order, by one warp: a lane has every 32nd
// in registers and takes out what was chosen.
DEVICE void choose(const Routing &r, const float *biased, const float *scores, float *chosen, float *total)
{
	constexpr u32 EACH = MAX_EXPERTS / 32, TAKEN = 0;
	u32 order[EACH];
#pragma unroll
	for (u32 j = 0; j < EACH; j++) {
		u32 i = j * 32 + lane();
		order[j] = i < r.experts ? order_of(biased[i]) : TAKEN;
	}
	float sum = 0;
	for (u32 k = 0; k < r.top_k; k++) {
		u32 best = TAKEN, at = 0;
#pragma unroll
		for (u32 j = 0; j < EACH; j++)
			if (j * 32 < r.experts && order[j] > best) {
				best = order[j];
				at = j * 32 + lane();
			}
		u32 most = warp_max(best), id = warp_min(best == most ? at : ~0u);
#pragma unroll
		for (u32 j = 0; j < EACH; j++)
			if (j * 32 + lane() == id)
				order[j] = TAKEN;
		sum += scores[id];
		if (lane() == 0) {
			chosen[k] = scores[id];
			i32_row(r.ids, bid())[k] = (i32)id;
		}
	}
	if (lane() == 0)
		*total = sum;
}

// One block a row.
KERNEL void __launch_bounds__(256) route(Routing r)
{
	let_next_start();
	__shared__ float scores[MAX_EXPERTS], biased[MAX_EXPERTS], groups[MAX_GROUPS], chosen[MAX_CHOSEN], total;
	u64 row = (u64)bid() * r.logits.stride;
	float m = 0, sum = 1;
	if (!r.sigmoid) {
		m = LOWEST;
		for (u32 i = tid(); i < r.experts; i += threads()) {
			float v = load_as_float(r.logits.data, row + i, r.logits.type);
			m = v > m ? v : m;
		}
		m = block_max(m);
		sum = 0;
		for (u32 i = tid(); i < r.experts; i += threads())
			sum += exp_poly(load_as_float(r.logits.data, row + i, r.logits.type) - m);
		sum = block_sum(sum);
	}
	for (u32 i = tid(); i < r.experts; i += threads()) {
		float v = load_as_float(r.logits.data, row + i, r.logits.type);
		scores[i] = r.sigmoid ? 1 / (1 + exp_poly(-v)) : exp_poly(v - m) / sum;
		biased[i] = r.bias ? scores[i] + load_as_float(r.bias, i, r.bias_type) : scores[i];
	}
	sync_block();
	if (r.groups > 1 && r.top_groups < r.groups)
		close_groups(biased, groups, r.experts, r.groups, r.top_groups);
	if (warp() == 0)
		choose(r, biased, scores, chosen, &total);
	sync_block();
	for (u32 k = tid(); k < r.top_k; k += threads())
		f32_row(r.weights, bid())[k] = (r.normalize ? chosen[k] / (total + 1e-20f) : chosen[k]) * r.scale;
}
