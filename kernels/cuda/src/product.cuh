// Skinny matrix products on tensor cores: 16 outputs by up to 64 rows a block.
//
// The weights are operand A of mma.m16n8k16 and the rows operand B, so a weight
// is read once for all rows. The order of the summation index is free as long as
// A and B agree: each lane takes 16 contiguous bytes of a weight row and the
// rows' values at the same indices. The eight warps of a block take k-blocks in
// turn and their sums are added in warp order, so the result of a row depends on
// the shape of the weights and never on how many rows there are.
#pragma once
#include "device.cuh"

constexpr u32 WARPS = 8, TILE_OUT = 16, MAX_ROWS = 64;

enum Format : u32 { PLAIN_BF16, FP8_BLOCK, INT4_GROUP };

// One weight matrix on this rank; mirrored by Go's weightParams.
struct Weight {
	const u8 *data;
	const void *scale;
	const void *bias;
	u32 out, in;
	u32 data_stride;  // bytes from one row to the next
	u32 scale_stride; // elements
	u32 scale_type, bias_type;
	u32 row_phase; // FP8_BLOCK: rows before the first in its block of 128
	u32 pad;
};

DEVICE u32 mul_bf16x2(u32 a, u32 b)
{
	u32 r;
	asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(0x80008000u));
	return r;
}
DEVICE u32 fma_bf16x2(u32 a, u32 b, u32 c)
{
	u32 r;
	asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
	return r;
}

// Two e4m3 values, in bytes 0 and 1 of v, as bf16.
DEVICE u32 e4m3_pair(u32 v)
{
	u32 bytes = (v & 0xffu) | (v & 0xff00u) << 8;
	u32 bits = (bytes & 0x00800080u) << 8 | (bytes & 0x007f007fu) << 4;
	return mul_bf16x2(bits, 0x7b807b80u); // 2^120
}

// Two 4-bit values, in bits 0-3 and 16-19 of v, minus 8, as bf16: 128+n is bits
// 0x4300|n, and 136 is 0x4308.
DEVICE u32 int4_pair(u32 v) { return fma_bf16x2((v & 0x000f000fu) | 0x43004300u, 0x3f803f80u, 0xc308c308u); }

// Lane and warp coordinates in a fragment.
DEVICE u32 frag_row() { return lane() >> 2; }
DEVICE u32 frag_part() { return lane() & 3; }

// rows of x that this product takes; index(n) is where row n is.
template <typename Index> struct Rows {
	const u16 *x;
	u32 stride, count;
	Index index;
};

// 16 bytes of row n from column k on, zeros beyond the last row.
template <typename Index> DEVICE u32x4 row_part(const Rows<Index> &rows, u32 n, u32 k)
{
	if (n >= rows.count)
		return u32x4{0, 0, 0, 0};
	return *(const u32x4 *)(rows.x + (u64)rows.index(n) * rows.stride + k);
}

// 32 columns: a lane's 16 bytes are eight of them. x(n, k) is 16 bytes of row n
// from column k of these on, here and below.
template <u32 N, typename X> DEVICE void block_bf16(float (&acc)[N][4], u32x4 low, u32x4 high, X x)
{
#pragma unroll
	for (u32 n = 0; n < N; n++) {
		u32x4 v = x(n, frag_part() * 8);
		mma(acc[n], low.x, high.x, low.y, high.y, v.x, v.y);
		mma(acc[n], low.z, high.z, low.w, high.w, v.z, v.w);
	}
}

// 128 columns with one scale: their products are summed before it is applied.
template <u32 N, typename X>
DEVICE void block_fp8(float (&acc)[N][4], const u32x4 (&low)[2], const u32x4 (&high)[2], float scale, X x)
{
	float part[N][4] = {};
#pragma unroll
	for (u32 h = 0; h < 2; h++) {
		const u32 *l = &low[h].x, *m = &high[h].x;
#pragma unroll
		for (u32 q = 0; q < 2; q++) { // 8 columns of this lane at a time
			u32 wl[4] = {e4m3_pair(l[2 * q]), e4m3_pair(l[2 * q] >> 16), e4m3_pair(l[2 * q + 1]), e4m3_pair(l[2 * q + 1] >> 16)};
			u32 wm[4] = {e4m3_pair(m[2 * q]), e4m3_pair(m[2 * q] >> 16), e4m3_pair(m[2 * q + 1]), e4m3_pair(m[2 * q + 1] >> 16)};
#pragma unroll
			for (u32 n = 0; n < N; n++) {
				u32x4 v = x(n, h * 64 + frag_part() * 16 + q * 8);
				mma(part[n], wl[0], wm[0], wl[1], wm[1], v.x, v.y);
				mma(part[n], wl[2], wm[2], wl[3], wm[3], v.z, v.w);
			}
		}
	}
#pragma unroll
	for (u32 n = 0; n < N; n++)
#pragma unroll
		for (u32 i = 0; i < 4; i++)
			acc[n][i] = fma_rn(part[n][i], scale, acc[n][i]);
}

// 128 columns. A lane's 16 bytes are the 32 columns of one group, so the scale
// goes into the weight. Word i holds columns 8i..8i+7, lowest nibble first.
template <u32 N, typename X>
DEVICE void block_int4(float (&acc)[N][4], u32x4 low, u32x4 high, u16 scale_low, u16 scale_high, X x)
{
	u32 s0 = scale_low * 0x10001u, s1 = scale_high * 0x10001u;
	const u32 *l = &low.x, *m = &high.x;
#pragma unroll
	for (u32 q = 0; q < 4; q++) {
		// Pairs (0,4) (1,5) (2,6) (3,7) of the word's columns come out together;
		// the rows' values are paired the same way below.
		u32 wl[4], wm[4];
#pragma unroll
		for (u32 i = 0; i < 4; i++) {
			wl[i] = mul_bf16x2(int4_pair(l[q] >> (4 * i)), s0);
			wm[i] = mul_bf16x2(int4_pair(m[q] >> (4 * i)), s1);
		}
#pragma unroll
		for (u32 n = 0; n < N; n++) {
			u32x4 v = x(n, frag_part() * 32 + q * 8);
			u32 x04 = permute_bytes(v.x, v.z, 0x5410), x15 = permute_bytes(v.x, v.z, 0x7632);
			u32 x26 = permute_bytes(v.y, v.w, 0x5410), x37 = permute_bytes(v.y, v.w, 0x7632);
			mma(acc[n], wl[0], wm[0], wl[1], wm[1], x04, x15);
			mma(acc[n], wl[2], wm[2], wl[3], wm[3], x26, x37);
		}
	}
}

template <u32 N, typename Index>
DEVICE void multiply_bf16(float (&acc)[N][4], const Weight &w, u32 row, const Rows<Index> &rows)
{
	constexpr u32 UNROLL = 4;
	u32 blocks = w.in / 32;
	const u8 *low = w.data + (u64)(row + frag_row()) * w.data_stride + frag_part() * 16;
	const u8 *high = low + (u64)8 * w.data_stride;
	for (u32 b = warp(); b < blocks; b += WARPS * UNROLL) {
		u32x4 a[UNROLL][2];
#pragma unroll
		for (u32 u = 0; u < UNROLL; u++)
			if (u32 at = b + u * WARPS; at < blocks) {
				a[u][0] = load_stream(low + at * 64);
				a[u][1] = load_stream(high + at * 64);
			}
#pragma unroll
		for (u32 u = 0; u < UNROLL; u++)
			if (u32 at = b + u * WARPS; at < blocks)
				block_bf16<N>(acc, a[u][0], a[u][1],
					      [&](u32 n, u32 k) { return row_part(rows, n * 8 + frag_row(), at * 32 + k); });
	}
}

template <u32 N, typename Index>
DEVICE void multiply_fp8(float (&acc)[N][4], const Weight &w, u32 row, const Rows<Index> &rows)
{
	const u8 *low = w.data + (u64)(row + frag_row()) * w.data_stride + frag_part() * 16;
	const u8 *high = low + (u64)8 * w.data_stride;
	const float *scale = (const float *)w.scale + (u64)((w.row_phase + row) / 128) * w.scale_stride;
	for (u32 b = warp(); b < w.in / 128; b += WARPS) {
		u32x4 l[2], m[2];
#pragma unroll
		for (u32 h = 0; h < 2; h++) {
			l[h] = load_stream(low + b * 128 + h * 64);
			m[h] = load_stream(high + b * 128 + h * 64);
		}
		block_fp8<N>(acc, l, m, scale[b], [&](u32 n, u32 k) { return row_part(rows, n * 8 + frag_row(), b * 128 + k); });
	}
}

template <u32 N, typename Index>
DEVICE void multiply_int4(float (&acc)[N][4], const Weight &w, u32 row, const Rows<Index> &rows)
{
	u32 r = row + frag_row();
	const u8 *low = w.data + (u64)r * w.data_stride + frag_part() * 16;
	const u8 *high = low + (u64)8 * w.data_stride;
	const u16 *scale = (const u16 *)w.scale + (u64)r * w.scale_stride + frag_part();
	for (u32 b = warp(); b < w.in / 128; b += WARPS)
		block_int4<N>(acc, load_stream(low + b * 64), load_stream(high + b * 64), scale[b * 4],
			      scale[b * 4 + (u64)8 * w.scale_stride],
			      [&](u32 n, u32 k) { return row_part(rows, n * 8 + frag_row(), b * 128 + k); });
}

template <u32 FORMAT, u32 N, typename Index>
DEVICE void multiply(float (&acc)[N][4], const Weight &w, u32 row, const Rows<Index> &rows)
{
	if constexpr (FORMAT == PLAIN_BF16)
		multiply_bf16<N>(acc, w, row, rows);
	else if constexpr (FORMAT == FP8_BLOCK)
		multiply_fp8<N>(acc, w, row, rows);
	else
		multiply_int4<N>(acc, w, row, rows);
}

// Sums of all warps: sums[n][o] for row n and output o of the tile, in shared
// memory. The caller synchronises before and after.
template <u32 N> DEVICE void store_part(float *parts, const float (&acc)[N][4])
{
	float *mine = parts + warp() * N * 8 * TILE_OUT;
#pragma unroll
	for (u32 n = 0; n < N; n++)
#pragma unroll
		for (u32 i = 0; i < 4; i++) {
			u32 row = n * 8 + frag_part() * 2 + (i & 1), out = frag_row() + (i >> 1) * 8;
			mine[row * TILE_OUT + out] = acc[n][i];
		}
}
template <u32 N> DEVICE float sum_parts(const float *parts, u32 i)
{
	float sum = parts[i];
#pragma unroll
	for (u32 p = 1; p < WARPS; p++)
		sum = add_rn(sum, parts[p * N * 8 * TILE_OUT + i]);
	return sum;
}

// Weight (o, k) of any matrix; data_type is that of plain and fp8 data.
DEVICE float weight_at(const Weight &w, u32 format, u32 data_type, u32 col_phase, u32 o, u32 k)
{
	const u8 *row = w.data + (u64)o * w.data_stride;
	if (format == INT4_GROUP) {
		u32 word = ((const u32 *)row)[k / 8];
		return (float)((i32)(word >> (k % 8 * 4) & 15) - 8) * load_as_float(w.scale, (u64)o * w.scale_stride + k / 32, w.scale_type);
	}
	float v = load_as_float(row, k, data_type);
	if (format == FP8_BLOCK)
		v *= ((const float *)w.scale)[(u64)((w.row_phase + o) / 128) * w.scale_stride + (col_phase + k) / 128];
	return v;
}
