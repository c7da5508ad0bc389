// RMSNorm of one row by one block, with the CPU's order of summation: segments
// of 512 squares in 16 lanes, lanes added as a tree, segments in order.
#pragma once
#include "device.cuh"

constexpr u32 NORM_SEGMENT = 512, NORM_LANES = 16;
constexpr u32 MAX_SEGMENTS = 64; // rows of up to 32768 values

// row: the values as bf16 in shared memory. parts: one float a segment. All
// threads of the block call it after a sync and get the same result.
DEVICE float row_inverse_rms(const u16 *row, u32 cols, float eps, float *parts)
{
	u32 segments = (cols + NORM_SEGMENT - 1) / NORM_SEGMENT;
	for (u32 s = tid() / NORM_LANES; s < ((segments + 1) & ~1u); s += threads() / NORM_LANES) {
		u32 first = s * NORM_SEGMENT + tid() % NORM_LANES;
		float sum = 0;
#pragma unroll
		for (u32 k = 0; k < NORM_SEGMENT / NORM_LANES; k++)
			if (u32 i = first + k * NORM_LANES; i < cols) {
				float v = bf16_to_float(row[i]);
				sum = fma_rn(v, v, sum);
			}
		sum = add_rn(sum, shuffle_xor(sum, 8));
		sum = add_rn(sum, shuffle_xor(sum, 4));
		sum = add_rn(sum, shuffle_xor(sum, 1));
		sum = add_rn(sum, shuffle_xor(sum, 2));
		if (tid() % NORM_LANES == 0 && s < segments)
			parts[s] = sum;
	}
	sync_block();
	float total = 0;
	for (u32 s = 0; s < segments; s++)
		total = add_rn(total, parts[s]);
	return inverse_rms(total, cols, eps);
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
