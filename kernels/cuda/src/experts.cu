// Mixture of experts without the host: one small kernel lists the experts that
// were chosen and the rows of each, the others take the list's entries, so that
// the grid depends on the number of rows and not on what they chose. Each
// expert's weights are read once for every eight of its rows.
#include "product.cuh"

// An expert that was chosen and where its places are in the list of places. Past
// the last one, count is 0.
struct Chosen {
	u32 expert, start, count, pad;
};

struct Experts {
	const Weight *gate, *up, *down; // [experts] on this rank
	const u16 *x;                   // [rows, x_stride]
	const i32 *ids;                 // [rows, top_k]
	const float *weights;           // [rows, top_k]
	u16 *hidden;                    // [rows * top_k, width]: a place is row * top_k + choice
	float *out;                     // [rows * top_k, cols]
	u16 *dst;                       // [rows, dst_stride]
	Chosen *chosen;                 // [limit]
	u16 *places;                    // [rows * top_k], expert by expert
	u32 x_stride, ids_stride, weights_stride, dst_stride;
	u32 rows, top_k, width, cols;
	i32 first; // global id of the first expert here
	u32 count; // experts here
	u32 format, data_type;
	u32 limit; // experts that rows can have chosen at most
	u32 pad;
};

constexpr u32 MAX_LOCAL = 1024, AT_A_TIME = 8;

// Sorts the places by expert. One block of MAX_LOCAL threads: a thread a place,
// then a thread an expert. The order of an expert's places varies, and nothing
// depends on it.
KERNEL void __launch_bounds__(1024) experts_sort(Experts x)
{
	__shared__ u32 counts[MAX_LOCAL], starts[MAX_LOCAL], sums[32];
	counts[tid()] = 0;
	sync_block();
	bool is_place = tid() < x.rows * x.top_k;
	i32 e = is_place ? x.ids[tid() / x.top_k * x.ids_stride + tid() % x.top_k] - x.first : -1;
	bool here = e >= 0 && e < (i32)x.count;
	u32 nth = here ? add_shared(&counts[e], 1) : 0;
	sync_block();
	// Sums over the experts before: places below, chosen experts above.
	u32 mine = counts[tid()] | (counts[tid()] ? 0x10000u : 0), sum = warp_scan(mine);
	if (lane() == 31)
		sums[warp()] = sum;
	sync_block();
	for (u32 w = 0; w < warp(); w++)
		sum += sums[w];
	u32 before = sum - mine, entry = before >> 16;
	starts[tid()] = before & 0xffff;
	if (counts[tid()])
		x.chosen[entry] = Chosen{tid(), before & 0xffff, counts[tid()], 0};
	if (tid() == MAX_LOCAL - 1)
		sums[0] = sum >> 16;
	sync_block();
	if (here)
		x.places[starts[e] + nth] = (u16)tid();
	if (tid() >= sums[0] && tid() < x.limit)
		x.chosen[tid()].count = 0;
}

DEVICE float silu(float g) { return g / (1 + exp_poly(-g)); }

// Products of one tile of M matrices of packed weights with up to eight rows: the
// k-blocks first, first + step, ... of 128 columns. x is this lane's row, or null.
// What multiply_int4 does, with the weights of four k-blocks on their way at once:
// the experts that one row chose have too few tiles to fill the device otherwise.
template <u32 M>
DEVICE void int4_tile(float (&acc)[M][1][4], const Weight *const (&w)[M], u32 row, const u16 *x, u32 first, u32 step)
{
	constexpr u32 UNROLL = 4;
	u32 blocks = w[0]->in / 128, r = row + frag_row();
	const u8 *data[M];
	const u16 *scale[M];
	u32 next_data[M], next_scale[M];
#pragma unroll
	for (u32 m = 0; m < M; m++) {
		data[m] = w[m]->data + (u64)r * w[m]->data_stride + frag_part() * 16;
		scale[m] = (const u16 *)w[m]->scale + (u64)r * w[m]->scale_stride + frag_part();
		next_data[m] = 8 * w[m]->data_stride;
		next_scale[m] = 8 * w[m]->scale_stride;
	}
	for (u32 base = first; base < blocks; base += step * UNROLL) {
		u32x4 a[UNROLL][M][2];
		u32 s[UNROLL][M][2];
#pragma unroll
		for (u32 u = 0; u < UNROLL; u++)
			if (u32 b = base + u * step; b < blocks)
#pragma unroll
				for (u32 m = 0; m < M; m++) {
					a[u][m][0] = load_stream(data[m] + b * 64);
					a[u][m][1] = load_stream(data[m] + next_data[m] + b * 64);
					s[u][m][0] = scale[m][b * 4] * 0x10001u;
					s[u][m][1] = scale[m][b * 4 + next_scale[m]] * 0x10001u;
				}
#pragma unroll
		for (u32 u = 0; u < UNROLL; u++)
			if (u32 b = base + u * step; b < blocks)
#pragma unroll
				for (u32 q = 0; q < 4; q++) {
					u32x4 v = x ? *(const u32x4 *)(x + b * 128 + frag_part() * 32 + q * 8) : u32x4{0, 0, 0, 0};
					u32 v04 = permute_bytes(v.x, v.z, 0x5410), v15 = permute_bytes(v.x, v.z, 0x7632);
					u32 v26 = permute_bytes(v.y, v.w, 0x5410), v37 = permute_bytes(v.y, v.w, 0x7632);
#pragma unroll
					for (u32 m = 0; m < M; m++) {
						u32 l = (&a[u][m][0].x)[q], h = (&a[u][m][1].x)[q], wl[4], wh[4];
#pragma unroll
						for (u32 i = 0; i < 4; i++) {
							wl[i] = mul_bf16x2(int4_pair(l >> (4 * i)), s[u][m][0]);
							wh[i] = mul_bf16x2(int4_pair(h >> (4 * i)), s[u][m][1]);
						}
						mma(acc[m][0], wl[0], wh[0], wl[1], wh[1], v04, v15);
						mma(acc[m][0], wl[2], wh[2], wl[3], wh[3], v26, v37);
					}
				}
	}
}

// grid: (width/16, limit). hidden = silu(gate x) * up x.
template <u32 FORMAT> DEVICE void gate_up(const Experts &x)
{
	__shared__ float gates[WARPS * 8 * TILE_OUT], ups[WARPS * 8 * TILE_OUT];
	const Chosen chosen = x.chosen[bid_y()];
	const u16 *places = x.places + chosen.start;
	const Weight *const both[2] = {x.gate + chosen.expert, x.up + chosen.expert};
	u32 row = bid() * TILE_OUT;
	for (u32 base = 0; base < chosen.count; base += AT_A_TIME) {
		bool used = base + frag_row() < chosen.count;
		u32 at = used ? places[base + frag_row()] / x.top_k : 0;
		float acc[2][1][4] = {};
		if constexpr (FORMAT == INT4_GROUP) {
			int4_tile<2>(acc, both, row, used ? x.x + (u64)at * x.x_stride : nullptr, warp(), WARPS);
		} else {
			auto index = [at](u32) { return at; };
			Rows<decltype(index)> rows{x.x, x.x_stride, chosen.count - base, index};
			multiply<FORMAT, 1>(acc[0], *both[0], row, rows);
			multiply<FORMAT, 1>(acc[1], *both[1], row, rows);
		}
		store_part<1>(gates, acc[0]);
		store_part<1>(ups, acc[1]);
		sync_block();
		for (u32 i = tid(); i < 8 * TILE_OUT; i += threads())
			if (base + i / TILE_OUT < chosen.count)
				x.hidden[(u64)places[base + i / TILE_OUT] * x.width + row + i % TILE_OUT] =
					float_to_bf16(silu(sum_parts<1>(gates, i)) * sum_parts<1>(ups, i));
		sync_block();
	}
}

// grid: (cols/16, limit). out = down hidden.
template <u32 FORMAT> DEVICE void project(const Experts &x)
{
	__shared__ float parts[WARPS * 8 * TILE_OUT];
	const Chosen chosen = x.chosen[bid_y()];
	const u16 *places = x.places + chosen.start;
	u32 row = bid() * TILE_OUT;
	for (u32 base = 0; base < chosen.count; base += AT_A_TIME) {
		u32 at = base + frag_row() < chosen.count ? places[base + frag_row()] : 0;
		auto index = [at](u32) { return at; };
		Rows<decltype(index)> rows{x.hidden, x.width, chosen.count - base, index};
		float acc[1][4] = {};
		multiply<FORMAT, 1>(acc, x.down[chosen.expert], row, rows);
		store_part<1>(parts, acc);
		sync_block();
		for (u32 i = tid(); i < 8 * TILE_OUT; i += threads())
			if (base + i / TILE_OUT < chosen.count)
				x.out[(u64)places[base + i / TILE_OUT] * x.cols + row + i % TILE_OUT] = sum_parts<1>(parts, i);
		sync_block();
	}
}

// The same with a warp a tile, which takes all of the width: a slice of an expert
// is too narrow to share among warps. grid: (ceil(cols/128), limit).
KERNEL void __launch_bounds__(256, 2) experts_down_narrow_int4(Experts x)
{
	const Chosen chosen = x.chosen[bid_y()];
	const u16 *places = x.places + chosen.start;
	const Weight *const down[1] = {x.down + chosen.expert};
	u32 row = (bid() * WARPS + warp()) * TILE_OUT;
	if (row >= x.cols)
		return;
	for (u32 base = 0; base < chosen.count; base += AT_A_TIME) {
		bool used = base + frag_row() < chosen.count;
		float acc[1][1][4] = {};
		int4_tile<1>(acc, down, row, used ? x.hidden + (u64)places[base + frag_row()] * x.width : nullptr, 0, 1);
#pragma unroll
		for (u32 i = 0; i < 4; i++)
			if (u32 n = base + frag_part() * 2 + (i & 1); n < chosen.count)
				x.out[(u64)places[n] * x.cols + row + frag_row() + (i >> 1) * 8] = acc[0][0][i];
	}
}

#define OCTET_EXPERTS(name, format)                                                                      \
	KERNEL void __launch_bounds__(256, 2) experts_gate_up_##name(Experts x) { gate_up<format>(x); } \
	KERNEL void __launch_bounds__(256, 3) experts_down_##name(Experts x) { project<format>(x); }
OCTET_EXPERTS(bf16, PLAIN_BF16)
OCTET_EXPERTS(fp8, FP8_BLOCK)
OCTET_EXPERTS(int4, INT4_GROUP)

// Any shape: one warp an output. grid: (ceil(outputs/8), places).
DEVICE float any_dot(const Experts &x, const Weight &w, u32 o, const u16 *row)
{
	float sum = 0;
	for (u32 k = lane(); k < w.in; k += 32)
		sum = fma_rn(bf16_to_float(row[k]), weight_at(w, x.format, x.data_type, 0, o, k), sum);
	return warp_sum(sum);
}
DEVICE i32 expert_of(const Experts &x, u32 place)
{
	i32 e = x.ids[place / x.top_k * x.ids_stride + place % x.top_k] - x.first;
	return e >= 0 && e < (i32)x.count ? e : -1;
}
KERNEL void __launch_bounds__(256) experts_gate_up_any(Experts x)
{
	u32 o = bid() * WARPS + warp(), place = bid_y();
	i32 e = expert_of(x, place);
	if (e < 0 || o >= x.width)
		return;
	const u16 *row = x.x + (u64)(place / x.top_k) * x.x_stride;
	float g = any_dot(x, x.gate[e], o, row), u = any_dot(x, x.up[e], o, row);
	if (lane() == 0)
		x.hidden[(u64)place * x.width + o] = float_to_bf16(silu(g) * u);
}
KERNEL void __launch_bounds__(256) experts_down_any(Experts x)
{
	u32 o = bid() * WARPS + warp(), place = bid_y();
	i32 e = expert_of(x, place);
	if (e < 0 || o >= x.cols)
		return;
	float v = any_dot(x, x.down[e], o, x.hidden + (u64)place * x.width);
	if (lane() == 0)
		x.out[(u64)place * x.cols + o] = v;
}

// dst += the weighted outputs of a row's experts here, in the order of ids.
// grid: (blocks of columns, rows).
KERNEL void experts_combine(Experts x)
{
	constexpr u32 BATCH = 8; // outputs on their way at once
	u32 place = bid_y() * x.top_k;
	for (u32 d = bid() * threads() + tid(); d < x.cols; d += blocks() * threads()) {
		u16 *dst = x.dst + (u64)bid_y() * x.dst_stride + d;
		float sum = bf16_to_float(*dst);
		for (u32 first = 0; first < x.top_k; first += BATCH) {
			bool here[BATCH];
			float out[BATCH], weight[BATCH];
#pragma unroll
			for (u32 c = 0; c < BATCH; c++) {
				here[c] = first + c < x.top_k && expert_of(x, place + first + c) >= 0;
				if (here[c]) {
					out[c] = x.out[(u64)(place + first + c) * x.cols + d];
					weight[c] = x.weights[bid_y() * x.weights_stride + first + c];
				}
			}
#pragma unroll
			for (u32 c = 0; c < BATCH; c++)
				if (here[c])
					sum = fma_rn(weight[c], out[c], sum);
		}
		*dst = float_to_bf16(sum);
	}
}
