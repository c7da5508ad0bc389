// RMSNorm of one row by one block, with the CPU's order of summation: segments
// of 512 squares in 16 lanes, lanes added as a tree, segments in order.
#pragma once
#include "device.cuh"

constexpr u32 NORM_SEGMENT = 512, NORM_LANES = 16;
constexpr u32 MAX_SEGMENTS = 64; // rows of up to 32768 values

// Sums the squares of the segments of a row, or of a piece of it that begins at
// a segment: row holds bf16 values in shared memory. put(s, sum) takes the sum
// of segment s of the piece, from one thread each.
template <typename Put> DEVICE void segment_squares(const u16 *row, u32 values, Put put)
{
	u32 segments = (values + NORM_SEGMENT - 1) / NORM_SEGMENT;
	for (u32 s = tid() / NORM_LANES; s < ((segments + 1) & ~1u); s += threads() / NORM_LANES) {
		u32 first = s * NORM_SEGMENT + tid() % NORM_LANES;
		float sum = 0;
#pragma unroll
		for (u32 k = 0; k < NORM_SEGMENT / NORM_LANES; k++)
			if (u32 i = first + k * NORM_LANES; i < values) {
				float v = bf16_to_float(row[i]);
				sum = fma_rn(v, v, sum);
			}
		sum = add_rn(sum, shuffle_xor(sum, 8));
		sum = add_rn(sum, shuffle_xor(sum, 4));
		sum = add_rn(sum, shuffle_xor(sum, 1));
		sum = add_rn(sum, shuffle_xor(sum, 2));
		if (tid() % NORM_LANES == 0 && s < segments)
			put(s, sum);
	}
}

DEVICE float total_squares(const float *parts, u32 cols)
{
	float total = 0;
	for (u32 s = 0; s < (cols + NORM_SEGMENT - 1) / NORM_SEGMENT; s++)
		total = add_rn(total, parts[s]);
	return total;
}

// The whole row by one block. All threads call it after a sync and get the same.
DEVICE float row_inverse_rms(const u16 *row, u32 cols, double inverse_cols, float eps, float *parts)
{
	segment_squares(row, cols, [parts](u32 s, float sum) { parts[s] = sum; });
	sync_block();
	return inverse_rms(total_squares(parts, cols), inverse_cols, eps);
}

DEVICE u32 norm_pair(u32 v, u32 w, float inv)
{
	return floats_to_bf16(mul_rn(mul_rn(bf16_low(v), inv), bf16_low(w)),
			      mul_rn(mul_rn(bf16_high(v), inv), bf16_high(w)));
}
DEVICE u32x4 norm_item(u32x4 v, u32x4 w, float inv)
{
	return u32x4{norm_pair(v.x, w.x, inv), norm_pair(v.y, w.y, inv), norm_pair(v.z, w.z, inv), norm_pair(v.w, w.w, inv)};
}

DEVICE u32 add_pair(u32 a, u32 b)
{
	return floats_to_bf16(add_rn(bf16_low(a), bf16_low(b)), add_rn(bf16_high(a), bf16_high(b)));
}
DEVICE u32x4 add_item(u32x4 a, u32x4 b)
{
	return u32x4{add_pair(a.x, b.x), add_pair(a.y, b.y), add_pair(a.z, b.z), add_pair(a.w, b.w)};
}
