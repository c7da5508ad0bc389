// Reads memory and does nothing else: the ceiling that memory-bound kernels are
// measured against. grid: any; count is 16-byte items.
#include "device.cuh"

KERNEL void __launch_bounds__(512) read_stream(const u32x4 *p, u64 count, u32 *sink)
{
	u32 sum = 0;
	u64 step = (u64)blocks() * threads();
	for (u64 i = (u64)bid() * threads() + tid(); i < count; i += 8 * step) {
		u32x4 v[8];
#pragma unroll
		for (u32 k = 0; k < 8; k++)
			v[k] = i + k * step < count ? load_stream(p + i + k * step) : u32x4{0, 0, 0, 0};
#pragma unroll
		for (u32 k = 0; k < 8; k++)
			sum ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
	}
	if (sum == 0x9e3779b9u)
		*sink = sum;
}
