// Attention over a paged cache, split by absolute position into spans of 64, after
// FlashDecoding: attend makes one partial result a (row, head, span), merge_spans
// puts the spans of a row together in order.
//
// A row's bits depend on what it sees and not on its company. Keys, and later
// columns of values, are the rows of operand A of mma.m16n8k16; a query of a row
// and a head is one column of B, which no other column touches. The place of a
// position in the sums is its place in its span, and what a row does not see has
// weight zero, whether it is there for another row or not.
#include "fragments.cuh"

constexpr u32 SPAN = 64, PAGE = 16, THREADS = 256, WARPS = THREADS / 32;
constexpr u32 SCORE_STRIDE = SPAN + 4;       // floats
constexpr u32 WEIGHT_STRIDE = 2 * SPAN + 16; // bytes
constexpr u32 NOWHERE = ~0u;

// What one row sees, in order of position: `committed` positions through the
// page table at `pages`, then `tail` cache slots listed at `tail_at`.
struct alignas(16) View {
	u32 committed, pages, tail_at, tail;
};

// Rows that find the same slots at the positions of these spans, as the last does.
struct alignas(16) Tile {
	u32 row, rows, span, spans;
	View last;
};

// Query heads that share a key head; unused places repeat the last.
struct Group {
	u32 kv, count, head[8];
};

struct Attention {
	const u16 *q, *k, *v; // v == k: values are the first columns of the keys
	u16 *dst;
	const View *views;
	const Tile *tiles;
	const i32 *slots; // page tables and tails
	const Group *groups;
	float *sums;  // [row][head][span][value_dim]: weighted sum of values
	float *stats; // [row][head][span][2]: largest score, sum of weights
	u32 q_stride, k_stride, v_stride, dst_stride;
	u32 heads, dim, value_dim, spans;
	float scale;
	u32 window; // 0: everything
	u32 first, rows; // of this launch; sums and stats begin with the first
	u32 tile_count, rows_at_a_time;
};

DEVICE u64 slot_of(const Attention &a, const View &view, u32 p)
{
	if (p < view.committed)
		return (u64)a.slots[view.pages + p / PAGE] * PAGE + p % PAGE;
	return a.slots[view.tail_at + p - view.committed];
}

DEVICE u32 first_seen(const Attention &a, u32 length) { return a.window && length > a.window ? length - a.window : 0; }

// Some rows of a tile, one of its spans, what its last row sees, and the number of
// items in all.
struct Item {
	u32 row, rows, span, count;
	View last;
};

// Item number n of all tiles. Every lane gets it. Where more tiles follow than were
// looked at, the number of items is not known.
DEVICE bool find_item(const Attention &a, u32 n, Item &item)
{
	u32 before = 0;
	for (u32 base = 0; base < a.tile_count; base += 32) {
		Tile tile = {};
		if (base + lane() < a.tile_count)
			tile = a.tiles[base + lane()];
		u32 row = tile.row > a.first ? tile.row : a.first, end = tile.row + tile.rows;
		end = end < a.first + a.rows ? end : a.first + a.rows;
		u32 parts = row < end ? (end - row + a.rows_at_a_time - 1) / a.rows_at_a_time : 0;
		u32 until = before + warp_scan(parts * tile.spans), begin = until - parts * tile.spans;
		if (u32 hit = ballot(until > n)) {
			u32 source = __builtin_ctz(hit);
			n -= shuffle_from(begin, source);
			parts = shuffle_from(parts, source);
			item.row = shuffle_from(row, source) + n % parts * a.rows_at_a_time;
			item.span = shuffle_from(tile.span, source) + n / parts;
			end = shuffle_from(end, source) - item.row;
			item.rows = end < a.rows_at_a_time ? end : a.rows_at_a_time;
			item.last = {shuffle_from(tile.last.committed, source), shuffle_from(tile.last.pages, source),
				     shuffle_from(tile.last.tail_at, source), shuffle_from(tile.last.tail, source)};
			item.count = shuffle_from(tile.rows, 31) ? NOWHERE : shuffle_from(until, 31);
			return true;
		}
		before = shuffle_from(until, 31);
		if (shuffle_from(tile.rows, 31) == 0)
			return false;
	}
	return false;
}

// Where things are in shared memory. The scores take the place of the queries.
struct Layout {
	u32 key_stride, value_stride; // bytes
	u32 queries, keys, values, weights;
};

template <u32 PAIRS> DEVICE Layout layout_of(const Attention &a, u32 base)
{
	Layout l;
	l.key_stride = (a.dim + 31) / 32 * 64 + 16;
	l.queries = base;
	l.keys = base + PAIRS * (l.key_stride > SCORE_STRIDE * 4 ? l.key_stride : SCORE_STRIDE * 4);
	l.values = l.keys;
	l.value_stride = l.key_stride;
	l.weights = l.keys + SPAN * l.key_stride;
	if (a.v != a.k) {
		l.value_stride = (a.value_dim + 15) / 16 * 32 + 16;
		l.values = l.weights;
		l.weights += SPAN * l.value_stride;
	}
	return l;
}

// Copies a row to shared memory by eight lanes, zeros behind its end.
DEVICE void copy_row(u32 to, u32 bytes, const u16 *from, u32 columns, bool there)
{
	for (u32 at = tid() % 8 * 16; at < bytes; at += 8 * 16) {
		bool inside = there && at < columns * 2;
		copy_async(to + at, inside ? (const u8 *)from + at : (const u8 *)from, inside);
	}
}

// Puts queries, keys and values of an item under way, as two groups of copies.
DEVICE void stage(const Attention &a, const Layout &l, const Item &item, const Group &group, u32 kv, u32 heads, u32 begin,
		  u32 end)
{
	constexpr u32 AT_A_TIME = THREADS / 8, PASSES = SPAN / AT_A_TIME;
	u64 slot[PASSES];
	bool there[PASSES];
#pragma unroll
	for (u32 i = 0; i < PASSES; i++) {
		u32 p = item.span * SPAN + i * AT_A_TIME + tid() / 8;
		there[i] = p >= begin && p < end;
		slot[i] = there[i] ? slot_of(a, item.last, p) : 0;
	}
	for (u32 pair = tid() / 8; pair < item.rows * heads; pair += AT_A_TIME) {
		u32 row = item.row + pair / heads, head = group.head[pair % heads];
		copy_row(l.queries + pair * l.key_stride, l.key_stride - 16, a.q + (u64)row * a.q_stride + head * a.dim, a.dim, true);
	}
#pragma unroll
	for (u32 i = 0; i < PASSES; i++)
		copy_row(l.keys + (i * AT_A_TIME + tid() / 8) * l.key_stride, l.key_stride - 16,
			 a.k + slot[i] * a.k_stride + kv * a.dim, a.dim, there[i]);
	end_copies();
	if (a.v != a.k)
#pragma unroll
		for (u32 i = 0; i < PASSES; i++)
			copy_row(l.values + (i * AT_A_TIME + tid() / 8) * l.value_stride, l.value_stride - 16,
				 a.v + slot[i] * a.v_stride + kv * a.value_dim, a.value_dim, there[i]);
	end_copies();
}

// Scores of a span: a warp takes 16 positions and every other eight pairs. Even
// and odd steps of 16 columns are summed apart.
template <u32 TILES, bool FULL /* all pairs are there */> DEVICE void score(const Layout &l, float *scores, u32 pairs)
{
	constexpr u32 MINE = (TILES + 1) / 2;
	u32 m = warp() % 4, first = warp() / 4;
	u32 key = l.keys + (m * 16 + lane() % 16) * l.key_stride + lane() / 16 * 16;
	u32 query = l.queries + (first * 8 + lane() % 8) * l.key_stride + lane() / 8 * 16;
	float sum[MINE][2][4] = {};
	if (first * 8 < pairs) {
		for (u32 at = 0; at < l.key_stride - 16; at += 128) {
			bool more = at + 64 < l.key_stride - 16;
			Matrices k[4];
#pragma unroll
			for (u32 i = 0; i < 4; i++)
				if (i < 2 || more)
					k[i] = load_matrices(key + at + i * 32);
#pragma unroll
			for (u32 n = 0; n < MINE; n++) {
				if (!FULL && (first + 2 * n) * 8 >= pairs)
					break;
				u32 from = query + 2 * n * 8 * l.key_stride + at;
				Matrices q = load_matrices(from);
				multiply_add(sum[n][0], k[0], q.m[0], q.m[1]);
				multiply_add(sum[n][1], k[1], q.m[2], q.m[3]);
				if (more) {
					q = load_matrices(from + 64);
					multiply_add(sum[n][0], k[2], q.m[0], q.m[1]);
					multiply_add(sum[n][1], k[3], q.m[2], q.m[3]);
				}
			}
		}
	}
	sync_block(); // the queries are not needed any more
#pragma unroll
	for (u32 n = 0; n < MINE; n++)
		if ((first + 2 * n) * 8 < pairs)
#pragma unroll
			for (u32 i = 0; i < 4; i++)
				scores[((first + 2 * n) * 8 + lane() % 4 * 2 + i % 2) * SCORE_STRIDE + m * 16 + lane() / 4 + i / 2 * 8] =
					add_rn(sum[n][0][i], sum[n][1][i]);
}

struct Stats {
	float most, total; // largest score, in powers of two, and sum of weights
};

// Weights of a pair by four lanes of 16 positions each, of which it sees those
// from begin up to end. The sum is that of the rounded weights.
DEVICE Stats weigh(const float *scores, u8 *weights, float scale, u32 begin, u32 end)
{
	float s[4][4], most = -__builtin_inff(), total = 0;
#pragma unroll
	for (u32 j = 0; j < 4; j++)
#pragma unroll
		for (u32 i = 0; i < 4; i++) {
			u32 p = j * 16 + lane() % 4 * 4 + i;
			s[j][i] = p >= begin && p < end ? mul_rn(scores[p], scale) : -__builtin_inff();
			most = s[j][i] > most ? s[j][i] : most;
		}
#pragma unroll
	for (u32 mask = 1; mask < 4; mask *= 2) {
		float other = shuffle_xor(most, mask);
		most = other > most ? other : most;
	}
	float zero = begin < end ? most : 0;
#pragma unroll
	for (u32 j = 0; j < 4; j++) {
		u32x2 w;
		w.x = floats_to_bf16(exp2_fast(s[j][0] - zero), exp2_fast(s[j][1] - zero));
		w.y = floats_to_bf16(exp2_fast(s[j][2] - zero), exp2_fast(s[j][3] - zero));
		total = add_rn(total, add_rn(add_rn(bf16_low(w.x), bf16_high(w.x)), add_rn(bf16_low(w.y), bf16_high(w.y))));
		*(u32x2 *)(weights + j * 32 + lane() % 4 * 8) = w;
	}
	total = add_rn(total, shuffle_xor(total, 1));
	total = add_rn(total, shuffle_xor(total, 2));
	return {most, total};
}

// Weighted sums of values: a warp takes 16 columns of them for all pairs.
template <u32 TILES> DEVICE void weighted_sums(const Attention &a, const Layout &l, const u32 *place, u32 pairs)
{
	u32 value = l.values + (lane() % 8 + lane() / 16 * 8) * l.value_stride + lane() / 8 % 2 * 16;
	u32 weight = l.weights + lane() % 8 * WEIGHT_STRIDE + lane() / 8 * 16;
	for (u32 m = warp(); m * 16 < a.value_dim; m += WARPS) {
		Matrices v[4];
#pragma unroll
		for (u32 k = 0; k < 4; k++)
			v[k] = load_transposed(value + k * 16 * l.value_stride + m * 32);
#pragma unroll
		for (u32 n = 0; n < TILES; n++) {
			if (n * 8 >= pairs)
				break;
			Matrices low = load_matrices(weight + n * 8 * WEIGHT_STRIDE), high = load_matrices(weight + n * 8 * WEIGHT_STRIDE + 64);
			float sum[4] = {};
			multiply_add(sum, v[0], low.m[0], low.m[1]);
			multiply_add(sum, v[1], low.m[2], low.m[3]);
			multiply_add(sum, v[2], high.m[0], high.m[1]);
			multiply_add(sum, v[3], high.m[2], high.m[3]);
#pragma unroll
			for (u32 i = 0; i < 4; i++) {
				u32 to = place[n * 8 + lane() % 4 * 2 + i % 2], column = m * 16 + lane() / 4 + i / 2 * 8;
				if (to != NOWHERE && column < a.value_dim)
					a.sums[(u64)to * a.value_dim + column] = sum[i];
			}
		}
	}
}

// grid: (any number of blocks, which take items in turn; group); at most TILES * 8
// pairs of a row and a head at a time.
template <u32 TILES> DEVICE void attend(const Attention &a)
{
	constexpr u32 PAIRS = TILES * 8;
	extern __shared__ u32x4 memory[];
	__shared__ u32 place[PAIRS]; // in sums and stats
	const Layout l = layout_of<PAIRS>(a, shared_address(memory));
	float *scores = (float *)memory;
	u8 *weights = (u8 *)memory + (l.weights - l.queries);
	float scale = mul_rn(a.scale, 1.44269504089f);
	const Group &group = a.groups[bid_y()];
	u32 kv = group.kv, heads = group.count;
	Item item;
	item.count = NOWHERE;
	for (u32 n = bid(); n < item.count && find_item(a, n, item); n += blocks()) {
		u32 pairs = item.rows * heads, pair = tid() / 4, first = item.span * SPAN;
		u32 begin = first_seen(a, item.last.committed + 1), end = item.last.committed + item.last.tail;
		if (first >= end || first + SPAN <= begin)
			continue;
		stage(a, l, item, group, kv, heads, begin, end);
		u32 row = pair / heads < item.rows ? pair / heads : item.rows - 1;
		const View view = a.views[item.row + row];
		u32 head = group.head[pair % heads], length = view.committed + view.tail, lowest = first_seen(a, length);
		u32 from = lowest > first ? lowest - first : 0, to = length > first ? length - first : 0;
		from = from < SPAN ? from : SPAN;
		to = to < SPAN ? to : SPAN;
		wait_copies<1>();
		sync_block();
		if (TILES > 2 && pairs > PAIRS - 8)
			score<TILES, true>(l, scores, pairs);
		else
			score<TILES, false>(l, scores, pairs);
		sync_block();
		if (warp() * 8 < pairs) {
			Stats s = weigh(scores + pair * SCORE_STRIDE, weights + pair * WEIGHT_STRIDE, scale, from, to);
			if (lane() % 4 == 0) {
				u32 at = ((item.row - a.first + row) * a.heads + head) * a.spans + item.span;
				bool seen = pair < pairs && from < to;
				place[pair] = seen ? at : NOWHERE;
				if (seen) {
					a.stats[2 * at] = s.most;
					a.stats[2 * at + 1] = s.total;
				}
			}
		}
		wait_copies<0>();
		sync_block();
		weighted_sums<TILES>(a, l, place, pairs);
		sync_block();
	}
}

KERNEL void __launch_bounds__(THREADS) attend_8(Attention a) { let_next_start(); attend<1>(a); }
KERNEL void __launch_bounds__(THREADS) attend_16(Attention a) { let_next_start(); attend<2>(a); }
KERNEL void __launch_bounds__(THREADS) attend_32(Attention a) { let_next_start(); attend<4>(a); }
KERNEL void __launch_bounds__(THREADS) attend_64(Attention a) { let_next_start(); attend<8>(a); }

// grid: (row, head, 128 columns), 8 warps: warp w adds spans w, w+8, ... in order,
// and their sums are added in order of warp. A lane has four columns.
KERNEL void __launch_bounds__(THREADS) merge_spans(Attention a)
{
	let_next_start();
	constexpr u32 AT_A_TIME = 4;
	__shared__ float4 parts[WARPS][32];
	u32 row = a.first + bid(), column = bid_z() * 128 + lane() * 4;
	const View view = a.views[row];
	u64 at = ((u64)bid() * a.heads + bid_y()) * a.spans;
	const float2 *stats = (const float2 *)a.stats + at;
	const float *sums = a.sums + at * a.value_dim + column;
	bool mine = column < a.value_dim, whole = a.window == 0;
	auto load = [&](float4 (&v)[AT_A_TIME], u32 s, u32 begin, u32 end) {
#pragma unroll
		for (u32 i = 0; i < AT_A_TIME; i++, s += WARPS)
			v[i] = mine && s >= begin && s < end ? *(const float4 *)(sums + (u64)s * a.value_dim) : float4{0, 0, 0, 0};
	};
	float4 v[AT_A_TIME];
	float2 early = {0, 0};
	if (whole) { // before it is known how many there are
		load(v, warp(), 0, a.spans);
		if (lane() < a.spans)
			early = stats[lane()];
	}
	u32 length = view.committed + view.tail, begin = first_seen(a, length) / SPAN, end = (length + SPAN - 1) / SPAN;
	u32 s = begin / WARPS * WARPS + warp();
	if (!whole)
		load(v, s, begin, end);
	auto stat = [&](u32 i) { return whole && i < 32 ? early : stats[i]; };
	float most = -__builtin_inff(), total = 0;
	for (u32 i = begin / 32 * 32 + lane(); i < end; i += 32)
		if (i >= begin) {
			float m = stat(i).x;
			most = m > most ? m : most;
		}
	most = warp_max(most);
	for (u32 i = begin / 32 * 32 + lane(); i < end; i += 32)
		if (i >= begin) {
			float2 of = stat(i);
			total = fma_rn(of.y, exp2_fast(of.x - most), total);
		}
	total = warp_sum(total);
	float4 sum = {0, 0, 0, 0};
	while (s < end) {
#pragma unroll
		for (u32 i = 0; i < AT_A_TIME; i++)
			if (u32 t = s + i * WARPS; t >= begin && t < end) {
				float scale = exp2_fast(stats[t].x - most);
				sum = {fma_rn(v[i].x, scale, sum.x), fma_rn(v[i].y, scale, sum.y), fma_rn(v[i].z, scale, sum.z),
				       fma_rn(v[i].w, scale, sum.w)};
			}
		s += AT_A_TIME * WARPS;
		load(v, s, begin, end);
	}
	parts[warp()][lane()] = sum;
	sync_block();
	if (warp() > 0 || !mine)
		return;
#pragma unroll
	for (u32 w = 1; w < WARPS; w++) {
		float4 other = parts[w][lane()];
		sum = {add_rn(sum.x, other.x), add_rn(sum.y, other.y), add_rn(sum.z, other.z), add_rn(sum.w, other.w)};
	}
	*(u32x2 *)(a.dst + (u64)row * a.dst_stride + bid_y() * a.value_dim + column) =
		u32x2{floats_to_bf16(sum.x / total, sum.y / total), floats_to_bf16(sum.z / total, sum.w / total)};
}
