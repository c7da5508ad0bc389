// dst[t, o] = sum_i x[t, i] w[o, i] + bias[o].
#include "product.cuh"

struct Product {
	Weight w;
	const u16 *x; // [rows, x_stride] bf16
	void *dst;
	u32 x_stride, dst_stride, dst_type;
	u32 rows;
	u32 block_out; // outputs that share a block of columns of x; out if there are no blocks
	u32 format;
	u32 data_type; // of plain data
	u32 col_phase; // FP8_BLOCK: columns before the first in its block of 128
};

DEVICE void store_output(const Product &p, u32 t, u32 o, float v)
{
	if (p.w.bias)
		v = add_rn(v, load_as_float(p.w.bias, o, p.w.bias_type));
	store_from_float(p.dst, (u64)t * p.dst_stride + o, p.dst_type, v);
}

// A block makes 16 outputs for 8N rows. grid: (out/16, ceil(rows/8N)).
template <u32 FORMAT, u32 N> DEVICE void skinny(const Product &p)
{
	__shared__ float parts[WARPS * N * 8 * TILE_OUT];
	u32 row = bid() * TILE_OUT, first = bid_y() * N * 8;
	auto index = [first](u32 n) { return first + n; };
	Rows<decltype(index)> rows{p.x + row / p.block_out * p.w.in, p.x_stride, p.rows - first, index};
	float acc[N][4] = {};
	multiply<FORMAT, N>(acc, p.w, row, rows);
	store_part<N>(parts, acc);
	sync_block();
	for (u32 i = tid(); i < N * 8 * TILE_OUT && first + i / TILE_OUT < p.rows; i += threads())
		store_output(p, first + i / TILE_OUT, row + i % TILE_OUT, sum_parts<N>(parts, i));
}

#define OCTET_SKINNY(name, format)                                                                  \
	KERNEL void __launch_bounds__(256, 3) matmul_##name##_8(Product p) { let_next_start(); skinny<format, 1>(p); }  \
	KERNEL void __launch_bounds__(256, 3) matmul_##name##_16(Product p) { let_next_start(); skinny<format, 2>(p); } \
	KERNEL void __launch_bounds__(256, 2) matmul_##name##_32(Product p) { let_next_start(); skinny<format, 4>(p); } \
	KERNEL void __launch_bounds__(256, 2) matmul_##name##_64(Product p) { let_next_start(); skinny<format, 8>(p); }
OCTET_SKINNY(bf16, PLAIN_BF16)
OCTET_SKINNY(fp8, FP8_BLOCK)
OCTET_SKINNY(int4, INT4_GROUP)

// Any shape, format and phase, one warp an output: for what the tiles do not fit.
KERNEL void __launch_bounds__(256) matmul_any(Product p)
{
	let_next_start();
	u32 o = bid() * WARPS + warp(), t = bid_y();
	if (o >= p.w.out)
		return;
	const u16 *x = p.x + (u64)t * p.x_stride + o / p.block_out * p.w.in;
	float sum = 0;
	for (u32 k = lane(); k < p.w.in; k += 32)
		sum = fma_rn(bf16_to_float(x[k]), weight_at(p.w, p.format, p.data_type, p.col_phase, o, k), sum);
	sum = warp_sum(sum);
	if (lane())
		return;
	store_output(p, t, o, sum);
}

#if __CUDA_ARCH__ >= 900
#include "stream.cuh"

#define OCTET_STREAM(name, format, rows, tiles, k_blocks)                                        \
	KERNEL void __launch_bounds__(384, 1) matmul_stream_##name##_##rows(Products p)        \
	{                                                                                      \
		stream<format, rows / 8, tiles, k_blocks>(p);                                  \
	}
OCTET_STREAM(bf16, PLAIN_BF16, 8, 1, 4)
OCTET_STREAM(bf16, PLAIN_BF16, 16, 2, 2)
OCTET_STREAM(bf16, PLAIN_BF16, 32, 2, 2)
OCTET_STREAM(bf16, PLAIN_BF16, 64, 2, 1)
#endif
