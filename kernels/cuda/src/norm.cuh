// RMSNorm of one row by one block, with the CPU's order of summation: segments
// of 512 squares in 16 lanes, lanes added as a tree, segments in order.
#pragma once
#include "device.cuh"

constexpr u32 NORM_SEGMENT = 512, SEGMENT_WORDS = NORM_SEGMENT / 2;
constexpr u32 MAX_SEGMENTS = 64; // rows of up to 32768 values

// 1/cols in two floats.
struct alignas(8) InverseCols {
	float high, rest;
};

// Where word i of a row is in shared memory: segments are eight words apart, so
// that the threads of a warp, which read four segments, meet no bank conflicts.
DEVICE u32 row_word(u32 i) { return i + i / SEGMENT_WORDS * 8; }
constexpr u32 row_words(u32 words) { return words + (words / SEGMENT_WORDS + 1) * 8; }

// Sums the squares of the segments of a row, or of a piece of it that begins at
// a segment: row holds words of two bf16 values at row_word(i), zeros up to the
// end of the last segment. Eight threads a segment have two lanes each. put(s, i,
// sum) takes the sum of segment s of the piece from each of them, i being 0 to 7.
template <typename Put> DEVICE void segment_squares(const u32 *row, u32 segments, Put put)
{
	u32 whole = (segments + 3) & ~3u; // all threads of a warp take part in the shuffles
	for (u32 s = tid() / 8; s < whole; s += threads() / 8) {
		const u32 *from = row + row_word(s * SEGMENT_WORDS) + tid() % 8;
		float low = 0, high = 0;
		if (s < segments) {
#pragma unroll
			for (u32 k = 0; k < SEGMENT_WORDS / 8; k++) {
				u32 pair = from[k * 8];
				low = fma_rn(bf16_low(pair), bf16_low(pair), low);
				high = fma_rn(bf16_high(pair), bf16_high(pair), high);
			}
		}
		low = add_rn(low, shuffle_xor(low, 4));
		high = add_rn(high, shuffle_xor(high, 4));
		low = add_rn(low, shuffle_xor(low, 2));
		high = add_rn(high, shuffle_xor(high, 2));
		float sum = add_rn(low, high);
		sum = add_rn(sum, shuffle_xor(sum, 1));
		if (s < segments)
			put(s, tid() % 8, sum);
	}
}

DEVICE float total_squares(const float *parts, u32 segments)
{
	float total = 0;
	for (u32 base = 0; base < segments; base += 8) {
		float v[8];
#pragma unroll
		for (u32 s = 0; s < 8; s++)
			v[s] = parts[base + s];
#pragma unroll
		for (u32 s = 0; s < 8; s++)
			if (base + s < segments)
				total = add_rn(total, v[s]);
	}
	return total;
}

// The whole row by one block. All threads call it after a sync and get the same.
DEVICE float row_inverse_rms(const u32 *row, u32 cols, InverseCols inverse, float eps, float *parts)
{
	u32 segments = (cols + NORM_SEGMENT - 1) / NORM_SEGMENT;
	segment_squares(row, segments, [parts](u32 s, u32 i, float sum) {
		if (i == 0)
			parts[s] = sum;
	});
	sync_block();
	return inverse_rms(total_squares(parts, segments), inverse.high, inverse.rest, eps);
}

DEVICE u32 norm_pair(u32 v, u32 w, float inv)
{
	return floats_to_bf16(mul_rn(mul_rn(bf16_low(v), inv), bf16_low(w)),
			      mul_rn(mul_rn(bf16_high(v), inv), bf16_high(w)));
}
DEVICE u32 add_pair(u32 a, u32 b)
{
	return floats_to_bf16(add_rn(bf16_low(a), bf16_low(b)), add_rn(bf16_high(a), bf16_high(b)));
}
