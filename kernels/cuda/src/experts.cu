// Mixture of experts without the host: a block finds the rows that chose its
// expert, so the grid depends on the shape of the model alone. Each expert's
// weights are read once for all its rows.
#include "product.cuh"

struct Experts {
	const Weight *gate, *up, *down; // [experts] on this rank
	const u16 *x;                   // [rows, x_stride]
	const i32 *ids;                 // [rows, top_k]
	const float *weights;           // [rows, top_k]
	u16 *hidden;                    // [rows * top_k, width]: a place is row * top_k + choice
	float *out;                     // [rows * top_k, cols]
	u16 *dst;                       // [rows, dst_stride]
	u32 x_stride, ids_stride, weights_stride, dst_stride;
	u32 rows, top_k, width, cols;
	i32 first; // global id of the first expert here
	u32 count; // experts here
	u32 format, data_type;
};

constexpr u32 MAX_PLACES = 1024, AT_A_TIME = 8;

// Lists the places that chose expert e, in order. All threads of the block call it.
DEVICE u32 find_places(const Experts &x, i32 e, u16 *places)
{
	__shared__ u32 found;
	if (warp() == 0) {
		u32 n = 0, total = x.rows * x.top_k;
		for (u32 base = 0; base < total; base += 32) {
			u32 p = base + lane();
			bool mine = p < total && x.ids[p / x.top_k * x.ids_stride + p % x.top_k] == x.first + e;
			u32 votes = __nvvm_vote_ballot_sync(0xffffffffu, mine);
			if (mine)
				places[n + __builtin_popcount(votes & ((1u << lane()) - 1))] = (u16)p;
			n += __builtin_popcount(votes);
		}
		if (lane() == 0)
			found = n;
	}
	sync_block();
	return found;
}

DEVICE float silu(float g) { return g / (1 + exp_poly(-g)); }

// grid: (width/16, experts). hidden = silu(gate x) * up x.
template <u32 FORMAT> DEVICE void gate_up(const Experts &x)
{
	__shared__ float gates[WARPS * 8 * TILE_OUT], ups[WARPS * 8 * TILE_OUT];
	__shared__ u16 places[MAX_PLACES];
	u32 n = find_places(x, bid_y(), places), row = bid() * TILE_OUT;
	for (u32 base = 0; base < n; base += AT_A_TIME) {
		auto index = [&](u32 i) { return places[base + i] / x.top_k; };
		Rows<decltype(index)> rows{x.x, x.x_stride, n - base, index};
		float g[1][4] = {}, u[1][4] = {};
		multiply<FORMAT, 1>(g, x.gate[bid_y()], row, rows);
		multiply<FORMAT, 1>(u, x.up[bid_y()], row, rows);
		store_part<1>(gates, g);
		store_part<1>(ups, u);
		sync_block();
		for (u32 i = tid(); i < 8 * TILE_OUT; i += threads())
			if (base + i / TILE_OUT < n)
				x.hidden[(u64)places[base + i / TILE_OUT] * x.width + row + i % TILE_OUT] =
					float_to_bf16(silu(sum_parts<1>(gates, i)) * sum_parts<1>(ups, i));
		sync_block();
	}
}

// grid: (cols/16, experts). out = down hidden.
template <u32 FORMAT> DEVICE void project(const Experts &x)
{
	__shared__ float parts[WARPS * 8 * TILE_OUT];
	__shared__ u16 places[MAX_PLACES];
	u32 n = find_places(x, bid_y(), places), row = bid() * TILE_OUT;
	for (u32 base = 0; base < n; base += AT_A_TIME) {
		auto index = [&](u32 i) { return (u32)places[base + i]; };
		Rows<decltype(index)> rows{x.hidden, x.width, n - base, index};
		float acc[1][4] = {};
		multiply<FORMAT, 1>(acc, x.down[bid_y()], row, rows);
		store_part<1>(parts, acc);
		sync_block();
		for (u32 i = tid(); i < 8 * TILE_OUT; i += threads())
			if (base + i / TILE_OUT < n)
				x.out[(u64)places[base + i / TILE_OUT] * x.cols + row + i % TILE_OUT] = sum_parts<1>(parts, i);
		sync_block();
	}
}

#define OCTET_EXPERTS(name, format)                                                                      \
	KERNEL void __launch_bounds__(256, 3) experts_gate_up_##name(Experts x) { gate_up<format>(x); } \
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
	for (u32 d = bid() * threads() + tid(); d < x.cols; d += blocks() * threads()) {
		u16 *dst = x.dst + (u64)bid_y() * x.dst_stride + d;
		float sum = bf16_to_float(*dst);
		for (u32 c = 0; c < x.top_k; c++) {
			u32 place = bid_y() * x.top_k + c;
			if (expert_of(x, place) >= 0)
				sum = fma_rn(x.weights[bid_y() * x.weights_stride + c], x.out[(u64)place * x.cols + d], sum);
		}
		*dst = float_to_bf16(sum);
	}
}
