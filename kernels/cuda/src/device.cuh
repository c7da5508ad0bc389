// What clang needs to compile our kernels without a CUDA toolkit: qualifiers,
// special registers, and the few instructions we use, as inline PTX.
#pragma once

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define METHOD __device__ __attribute__((always_inline)) inline
#define DEVICE static METHOD
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

DEVICE u32 least(u32 a, u32 b) { return a < b ? a : b; }
DEVICE void sync_block() { __syncthreads(); }
DEVICE void sync_warp() { __nvvm_bar_warp_sync(0xffffffffu); }
DEVICE bool all_in_block(bool v) { return __nvvm_bar0_and(v); }
DEVICE bool all_in_warp(bool v) { return __nvvm_vote_all_sync(0xffffffffu, v); }

// The kernel behind this one may be launched already, if it was asked to start
// early: it fetches weights, and waits before it touches what any kernel writes.
// Older cards launch in turn.
DEVICE void let_next_start()
{
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.launch_dependents;");
#endif
}

DEVICE u32 shared_address(const void *p)
{
	u32 a;
	asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(a) : "l"(p));
	return a;
}

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
// 16 bytes as one access, at system scope.
DEVICE u32x4 load_atomic(const u32x4 *p)
{
	u64 low, high;
	asm volatile("{ .reg .b128 v; ld.relaxed.sys.global.b128 v, [%2]; mov.b128 {%0, %1}, v; }" : "=l"(low), "=l"(high) : "l"(p) : "memory");
	return u32x4{(u32)low, (u32)(low >> 32), (u32)high, (u32)(high >> 32)};
}
DEVICE void store_atomic(u32x4 *p, u32x4 v)
{
	asm volatile("{ .reg .b128 v; mov.b128 v, {%1, %2}; st.relaxed.sys.global.b128 [%0], v; }" ::"l"(p),
		     "l"((u64)v.y << 32 | v.x), "l"((u64)v.w << 32 | v.z) : "memory");
}
DEVICE void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
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

// Adds to a word in shared memory and returns what was there.
DEVICE u32 add_shared(u32 *p, u32 v)
{
	u32 was;
	asm volatile("atom.shared.add.u32 %0, [%1], %2;" : "=r"(was) : "r"(shared_address(p)), "r"(v) : "memory");
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

// Byte i of the result is byte (select >> 4i & 7) of b:a.
DEVICE u32 permute_bytes(u32 a, u32 b, u32 select)
{
	u32 r;
	asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(select));
	return r;
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
// 1/sqrt(squares/n + eps) to 46 bits, rounded. 1/n comes in two floats. One step
// of third order from the approximate root in pairs of floats takes a seventh of
// the time that doubles do.
DEVICE float inverse_rms(float squares, float inverse_n, float inverse_n_rest, float eps)
{
	float p = mul_rn(squares, inverse_n), v = add_rn(p, eps);
	// The rest of v: what the product and the sum lost.
	float part = add_rn(v, -p);
	float rest = add_rn(add_rn(p, -add_rn(v, -part)), add_rn(eps, -part));
	rest = add_rn(rest, fma_rn(squares, inverse_n_rest, fma_rn(squares, inverse_n, -p)));
	float y;
	asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(v));
	float square = mul_rn(y, y), square_rest = fma_rn(y, y, -square);
	float e = fma_rn(-v, square, 1.0f);
	e = add_rn(e, -fma_rn(v, square_rest, mul_rn(rest, square)));
	return fma_rn(mul_rn(y, e), fma_rn(0.375f, e, 0.5f), y);
}

DEVICE float shuffle_xor(float v, u32 mask)
{
	return as_float(__nvvm_shfl_sync_bfly_i32(0xffffffffu, as_bits(v), mask, 31));
}
DEVICE u32 shuffle_xor(u32 v, u32 mask) { return __nvvm_shfl_sync_bfly_i32(0xffffffffu, v, mask, 31); }
// Sum over this lane and those before it.
DEVICE u32 warp_scan(u32 v)
{
#pragma unroll
	for (u32 d = 1; d < 32; d *= 2) {
		u32 before = __nvvm_shfl_sync_up_i32(0xffffffffu, v, d, 0);
		v += lane() >= d ? before : 0;
	}
	return v;
}
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

DEVICE u32 warp_max(u32 v) { return __nvvm_redux_sync_umax(v, 0xffffffffu); }
DEVICE u32 warp_min(u32 v) { return __nvvm_redux_sync_umin(v, 0xffffffffu); }

// c += a b for 16 rows of a and 8 columns of b, bf16.
DEVICE void mma(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1)
{
	asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
	    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
	    : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// e^x by the polynomial of the CPU backend, to about 2 ulp.
DEVICE float exp_poly(float x)
{
	constexpr float magic = 12582912.0f;
	if (x < -87)
		return 0;
	if (x > 88)
		x = 88;
	float t = fma_rn(x, 1.44269504088896341f, magic), n = t - magic;
	float r = fma_rn(n, -0.693359375f, x);
	r = fma_rn(n, 2.12194440e-4f, r);
	float y = 1.9875691500e-4f;
	y = fma_rn(y, r, 1.3981999507e-3f);
	y = fma_rn(y, r, 8.3334519073e-3f);
	y = fma_rn(y, r, 4.1665795894e-2f);
	y = fma_rn(y, r, 1.6666665459e-1f);
	y = fma_rn(y, r, 5.0000001201e-1f);
	y = add_rn(fma_rn(y, mul_rn(r, r), r), 1.0f);
	return as_float(as_bits(y) + (as_bits(t) << 23));
}

// Element types that tensors can have; the numbers are kernels.DType's.
enum : u32 { F32 = 1, BF16 = 2, F16 = 3, F8E4M3 = 4 };

DEVICE float half_to_float(u16 v)
{
	float r;
	asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v));
	return r;
}
// The exponent field of e4m3 becomes bf16's; the product puts the bias right and
// makes denormals normal.
DEVICE float e4m3_to_float(u8 v)
{
	if ((v & 0x7f) == 0x7f)
		return as_float(0x7fc00000u);
	return as_float((u32)(v & 0x80) << 24 | (u32)(v & 0x7f) << 20) * 0x1p120f;
}
DEVICE float load_as_float(const void *p, u64 i, u32 type)
{
	switch (type) {
	case F32:
		return ((const float *)p)[i];
	case BF16:
		return bf16_to_float(((const u16 *)p)[i]);
	case F16:
		return half_to_float(((const u16 *)p)[i]);
	}
	return e4m3_to_float(((const u8 *)p)[i]);
}
DEVICE void store_from_float(void *p, u64 i, u32 type, float v)
{
	if (type == F32)
		((float *)p)[i] = v;
	else
		((u16 *)p)[i] = float_to_bf16(v);
}
