// What every all-reduce kernel shares: the rank's view of its group, operation
// numbers, bounded waits and packets.
#pragma once
#include "device.cuh"

constexpr u32 MAX_RANKS = 8;
// Operation words: one a block, so that a block learns its number with one load.
constexpr u32 MAX_BLOCKS = 512;

// Words in this rank's device memory.
struct Local {
	u32 ops[MAX_BLOCKS]; // number of the operation that block i runs next
	u32 abort;           // copy of the group's abort word
	u32 claim;           // 1 once a lane has taken it on itself to report
	u64 polled;          // when a lane last read the abort word in host memory
};

// One rank's report, in host memory that the device can write.
struct Report {
	u32 valid; // written last
	u32 op, phase, peer;
	u32 progress; // an operation number, every 64 operations
};

// One rank's view of the group; mirrored by Go's exchangeParams.
struct Exchange {
	u64 push[MAX_RANKS];  // where this rank writes for rank r
	u64 inbox[MAX_RANKS]; // where this rank reads what rank r wrote
	Local *local;
	u32 *host_abort; // the group's sticky abort word, in host memory
	Report *report;
	u64 timeout_ns;
	u32 area; // the largest payload in bytes
	u32 rank;
	u32 others;   // ranks r whose push[r] takes what all others must read
	u32 everyone; // the same for what all ranks must read
};

// A slot is what one rank writes for one operation. Its areas are apart, so that
// plain data is never taken for the number in a packet. The slot of odd
// operations follows that of even ones.
DEVICE u64 slot_of(const Exchange &x, u32 op) { return (u64)(op & 1) * 6 * x.area; }
DEVICE u64 gather_packets(const Exchange &x) { return (u64)2 * x.area; }
DEVICE u64 plain_data(const Exchange &x) { return (u64)4 * x.area; }
DEVICE u64 tile_flags(const Exchange &x) { return (u64)5 * x.area; }

// The phases that a report names.
enum : u32 { PHASE_SCATTER = 1, PHASE_GATHER = 2, PHASE_FLAG = 3 };

// Zeroed memory must not look like a packet, and two operations in a row must
// not share a slot: numbers wrap from 2^32-1 to 2.
DEVICE u32 next_op(u32 op) { return op == 0xffffffffu ? 2 : op + 1; }

DEVICE u32 begin_op(const Exchange &x, u32 block)
{
	u32 op = load_volatile(x.local->ops + block);
	if (block == 0 && tid() == 0 && (op & 63) == 0)
		store_volatile(&x.report->progress, op);
	return op;
}

// Every launch advances the words of all blocks, also of those it does not have.
DEVICE void end_op(const Exchange &x, u32 block, u32 count, u32 op)
{
	sync_block();
	for (u32 i = block + tid() * count; i < MAX_BLOCKS; i += threads() * count)
		x.local->ops[i] = next_op(op);
}

constexpr u64 FIRST_POLL_NS = 20000, POLL_NS = 10000;
constexpr u64 GONE = ~0ull;

// The slow path of a wait, entered every few spins. Returns when the wait began,
// or GONE if the group has aborted. One lane of the device at a time reads the
// abort word in host memory: at first after 20 us, then every 10 us.
static __device__ __attribute__((noinline)) u64 keep_waiting(Local *local, u32 *host_abort, Report *report, u64 timeout_ns,
							     u64 since, u32 op, u32 phase, u32 peer)
{
	u64 now = global_time_ns();
	if (load_volatile(&local->abort))
		return GONE;
	if (since == 0)
		return now;
	if (now - since < FIRST_POLL_NS)
		return since;
	u64 polled = load_volatile(&local->polled);
	if (now >= polled + POLL_NS && cas(&local->polled, polled, now) == polled && load_volatile(host_abort)) {
		store_volatile(&local->abort, 1);
		return GONE;
	}
	if (now - since > timeout_ns) {
		if (cas(&local->claim, 0, 1) == 0) {
			report->op = op;
			report->phase = phase;
			report->peer = peer;
			store_release(&report->valid, 1);
			store_release(host_abort, 1);
		}
		store_volatile(&local->abort, 1);
		return GONE;
	}
	return since;
}

#define KEEP_WAITING(x, since, op, phase, peer) \
	keep_waiting((x).local, (x).host_abort, (x).report, (x).timeout_ns, since, op, phase, peer)

// A packet is three words of data and the operation number, written and read as
// one 16-byte access, which the memory model makes single-copy atomic: data and
// number arrive together, without a fence.
constexpr u32 PACKET_WORDS = 3;

DEVICE u32 packets_of(u32 words) { return (words + PACKET_WORDS - 1) / PACKET_WORDS; }

// Words of a packet; those from `words` on do not exist and read as zero.
struct Words {
	u32 w[PACKET_WORDS];
};
DEVICE Words load_words(const u32 *from, u32 packet, u32 words)
{
	Words v;
#pragma unroll
	for (u32 j = 0; j < PACKET_WORDS; j++)
		v.w[j] = packet * PACKET_WORDS + j < words ? from[packet * PACKET_WORDS + j] : 0;
	return v;
}
DEVICE void store_words(u32 *to, u32 packet, u32 words, Words v)
{
#pragma unroll
	for (u32 j = 0; j < PACKET_WORDS; j++)
		if (packet * PACKET_WORDS + j < words)
			to[packet * PACKET_WORDS + j] = v.w[j];
}

DEVICE void push_packet(u64 slot, u32 packet, Words v, u32 op)
{
	store_atomic((u32x4 *)slot + packet, u32x4{v.w[0], v.w[1], v.w[2], op});
}

// Waits for a packet of each rank of the set bits in `from`; false if the group
// aborted.
template <u32 R>
DEVICE bool pull_packets(const Exchange &x, const u64 (&slot)[R], u32 from, u32 packet, u32 op, u32 phase, Words (&data)[R])
{
	u64 since = 0;
	for (u32 spins = 1;; spins++) {
		u32 missing = 0;
#pragma unroll
		for (u32 r = 0; r < R; r++) {
			if (!(from >> r & 1))
				continue;
			u32x4 v = load_atomic((const u32x4 *)slot[r] + packet);
			if (v.w != op)
				missing = r + 1;
			data[r] = Words{{v.x, v.y, v.z}};
		}
		if (!missing)
			return true;
		if ((spins & 15) == 0) {
			since = KEEP_WAITING(x, since, op, phase, missing - 1);
			if (since == GONE)
				return false;
		}
	}
}

// The contract's sum: float32 along a binary tree over the ranks, rounded once.
template <u32 N> DEVICE float tree_sum(const float (&v)[N])
{
	if constexpr (N == 1) {
		return v[0];
	} else {
		float next[(N + 1) / 2];
#pragma unroll
		for (u32 i = 0; i < N / 2; i++)
			next[i] = add_rn(v[2 * i], v[2 * i + 1]);
		if constexpr (N % 2)
			next[N / 2] = v[N - 1];
		return tree_sum(next);
	}
}

template <u32 R> DEVICE u32 sum_pair(const u32 (&pair)[R])
{
	float low[R], high[R];
#pragma unroll
	for (u32 r = 0; r < R; r++) {
		low[r] = bf16_low(pair[r]);
		high[r] = bf16_high(pair[r]);
	}
	float l = tree_sum(low), h = tree_sum(high);
	return floats_to_bf16(l, h);
}

template <u32 R> DEVICE Words sum_words(const Words (&data)[R])
{
	Words sum;
#pragma unroll
	for (u32 j = 0; j < PACKET_WORDS; j++) {
		u32 pair[R];
#pragma unroll
		for (u32 r = 0; r < R; r++)
			pair[r] = data[r].w[j];
		sum.w[j] = sum_pair(pair);
	}
	return sum;
}
