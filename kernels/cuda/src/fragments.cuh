// Operands of mma.m16n8k16 from shared memory, and copies to it that go on while
// the thread does something else. Rows in shared memory are an odd number of 16
// bytes apart, so that eight of them are in different banks.
#pragma once
#include "device.cuh"

struct alignas(8) float2 {
	float x, y;
};
struct alignas(16) float4 {
	float x, y, z, w;
};

// Copies 16 bytes to shared memory, or zeros if !there.
DEVICE void copy_async(u32 shared, const void *global, bool there)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(there ? 16 : 0) : "memory");
}
DEVICE void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until all but the last N groups of copies of this thread are there.
template <u32 N> DEVICE void wait_copies() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// Four matrices of 8x8 bf16; lanes 8i to 8i+7 give the rows of matrix i.
struct Matrices {
	u32 m[4];
};
DEVICE Matrices load_matrices(u32 at)
{
	Matrices r;
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
		     : "=r"(r.m[0]), "=r"(r.m[1]), "=r"(r.m[2]), "=r"(r.m[3]) : "r"(at) : "memory");
	return r;
}
DEVICE Matrices load_transposed(u32 at)
{
	Matrices r;
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
		     : "=r"(r.m[0]), "=r"(r.m[1]), "=r"(r.m[2]), "=r"(r.m[3]) : "r"(at) : "memory");
	return r;
}

DEVICE void multiply_add(float (&c)[4], const Matrices &a, u32 b0, u32 b1) { mma(c, a.m[0], a.m[1], a.m[2], a.m[3], b0, b1); }

DEVICE u32 shuffle_from(u32 v, u32 source) { return __nvvm_shfl_sync_idx_i32(0xffffffffu, v, source, 31); }
DEVICE u32 ballot(bool v) { return __nvvm_vote_ballot_sync(0xffffffffu, v); }
