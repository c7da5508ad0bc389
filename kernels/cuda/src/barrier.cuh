// Barriers in shared memory that count bytes as they come, of sm_90 and up.
#pragma once
#include "device.cuh"

// Arrives, and lets the barrier's phase end once that many bytes have come.
DEVICE void arrive_expecting(u64 *b, u32 bytes)
{
	asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes) : "memory");
}
DEVICE void await_phase(u64 *b, u32 parity)
{
	u32 done;
	do {
		asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
			     : "=r"(done) : "r"(shared_address(b)), "r"(parity) : "memory");
	} while (!done);
}
