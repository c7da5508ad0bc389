// What clang needs to compile our kernels without a CUDA toolkit: qualifiers,
// special registers, and the few instructions we use, as inline PTX.
#pragma once

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define DEVICE static __device__ __attribute__((always_inline)) inline
#define KERNEL extern "C" __global__

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;

struct alignas(16) u32x4 {
	u32 x, y, z, w;
};
struct alignas(8) u32x2 {
	u32 x, y;
};

DEVICE u32 tid() { return __nvvm_read_ptx_sreg_tid_x(); }
DEVICE u32 bid() { return __nvvm_read_ptx_sreg_ctaid_x(); }
DEVICE u32 bid_y() { return __nvvm_read_ptx_sreg_ctaid_y(); }
DEVICE u32 bid_z() { return __nvvm_read_ptx_sreg_ctaid_z(); }
DEVICE u32 threads() { return __nvvm_read_ptx_sreg_ntid_x(); }
DEVICE u32 blocks() { return __nvvm_read_ptx_sreg_nctaid_x(); }
DEVICE u32 lane() { return tid() & 31; }
DEVICE u32 warp() { return tid() >> 5; }

DEVICE u64 global_time_ns()
{
	u64 t;
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
	return t;
}

DEVICE void sync_block() { __syncthreads(); }
DEVICE void sync_warp() { __nvvm_bar_warp_sync(0xffffffffu); }
DEVICE bool all_in_block(bool v) { return __nvvm_bar0_and(v); }
DEVICE bool all_in_warp(bool v) { return __nvvm_vote_all_sync(0xffffffffu, v); }

// Volatile accesses are relaxed at system scope and never cached in L1.
DEVICE u32 load_volatile(const u32 *p)
{
	u32 v;
	asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
	return v;
}
DEVICE u64 load_volatile(const u64 *p)
{
	u64 v;
	asm volatile("ld.volatile.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
	return v;
}
DEVICE u32x4 load_volatile(const u32x4 *p)
{
	u32x4 v;
	asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];"
		     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
	return v;
}
DEVICE void store_volatile(u32 *p, u32 v) { asm volatile("st.volatile.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
DEVICE void store_volatile(u32x4 *p, u32x4 v)
{
	asm volatile("st.volatile.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
DEVICE u32 load_acquire(const u32 *p)
{
	u32 v;
	asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
	return v;
}
DEVICE void store_release(u32 *p, u32 v) { asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
DEVICE u32 cas(u32 *p, u32 old, u32 v)
{
	u32 was;
	asm volatile("atom.global.cas.b32 %0, [%1], %2, %3;" : "=r"(was) : "l"(p), "r"(old), "r"(v) : "memory");
	return was;
}
DEVICE u64 cas(u64 *p, u64 old, u64 v)
{
	u64 was;
	asm volatile("atom.global.cas.b64 %0, [%1], %2, %3;" : "=l"(was) : "l"(p), "l"(old), "l"(v) : "memory");
	return was;
}

// Weights and other data that one kernel reads once: past L1.
DEVICE u32x4 load_stream(const void *p)
{
	u32x4 v;
	asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
		     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
	return v;
}

DEVICE float as_float(u32 v) { return __builtin_bit_cast(float, v); }
DEVICE u32 as_bits(float v) { return __builtin_bit_cast(u32, v); }
DEVICE float bf16_low(u32 pair) { return as_float(pair << 16); }
DEVICE float bf16_high(u32 pair) { return as_float(pair & 0xffff0000u); }
DEVICE float bf16_to_float(u16 v) { return as_float((u32)v << 16); }

// Rounds to nearest, ties to even. NaN stays NaN.
DEVICE u16 float_to_bf16(float v)
{
	u16 r;
	asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(v));
	return r;
}
DEVICE u32 floats_to_bf16(float low, float high)
{
	u32 r;
	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
	return r;
}

// Arithmetic that the compiler must neither fuse nor reorder.
DEVICE float add_rn(float a, float b)
{
	float r;
	asm("add.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
	return r;
}
DEVICE float mul_rn(float a, float b)
{
	float r;
	asm("mul.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
	return r;
}
DEVICE float fma_rn(float a, float b, float c)
{
	float r;
	asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(r) : "f"(a), "f"(b), "f"(c));
	return r;
}
DEVICE float exp2_fast(float v)
{
	float r;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
	return r;
}
DEVICE float exp_fast(float v) { return exp2_fast(v * 1.44269504089f); }
DEVICE float log_fast(float v)
{
	float r;
	asm("lg2.approx.f32 %0, %1;" : "=f"(r) : "f"(v));
	return r * 0.69314718056f;
}
// 1/sqrt(squares/n + eps), rounded once from double, as the CPU does it.
DEVICE float inverse_rms(float squares, u32 n, float eps)
{
	double v = (double)squares / (double)n + (double)eps, r;
	asm("sqrt.rn.f64 %0, %1;" : "=d"(r) : "d"(v));
	return (float)(1.0 / r);
}

DEVICE float shuffle_xor(float v, u32 mask)
{
	return as_float(__nvvm_shfl_sync_bfly_i32(0xffffffffu, as_bits(v), mask, 31));
}
DEVICE u32 shuffle_xor(u32 v, u32 mask) { return __nvvm_shfl_sync_bfly_i32(0xffffffffu, v, mask, 31); }
DEVICE float warp_sum(float v)
{
	for (u32 m = 16; m; m >>= 1)
		v += shuffle_xor(v, m);
	return v;
}
DEVICE float warp_max(float v)
{
	for (u32 m = 16; m; m >>= 1) {
		float o = shuffle_xor(v, m);
		v = o > v ? o : v;
	}
	return v;
}
