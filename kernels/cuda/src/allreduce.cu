// All-reduce of bf16 over RANKS ranks; this file is compiled once for each
// number of ranks. Every form gives the bits of the contract: float32 along a
// binary tree over the ranks, one rounding. Sizes count items of 16 bytes.
//
// one_shot (packets): every rank writes its data to every other and sums all.
// two_shot (packets): rank r sums chunk r and writes the sum to all.
// staged (flags): as one_shot, but plain data in tiles of 2 KB with a flag each:
// half the bytes of packets for one more trip of latency. Blocks that write and
// blocks that read run side by side, so both directions of a link are in use.
//
// On the host path all ranks write to and read from host memory: what one rank
// writes is read by all, so the masks of the exchange name one target.
#include "exchange.cuh"
#include "norm.cuh"

constexpr u32 R = RANKS;

struct Fusion {
	u32x4 *residual;     // [rows, items] in and out
	const u32x4 *weight; // [items]
	u32x4 *normed;       // [rows, items] out
	double inverse_cols; // of a row
	float eps;
	u32 pad;
};

DEVICE void push_to(const Exchange &x, u32 targets, u64 at, u32 item, u32x4 data, u32 op)
{
#pragma unroll
	for (u32 r = 0; r < R; r++)
		if (targets >> r & 1)
			push_item(x.push[r] + at, item, data, op);
}

constexpr u32 ALL = (1u << R) - 1;

DEVICE void slots_of(const Exchange &x, u64 at, u64 (&slot)[R])
{
#pragma unroll
	for (u32 r = 0; r < R; r++)
		slot[r] = x.inbox[r] + at;
}

DEVICE void set_own(const Exchange &x, u32x4 own, u32x4 (&data)[R])
{
#pragma unroll
	for (u32 r = 0; r < R; r++)
		if (r == x.rank)
			data[r] = own;
}

DEVICE void one_shot(const Exchange &x, u32 block, u32 count, const u32x4 *in, u32x4 *out, u32 items)
{
	u32 op = begin_op(x, block), first = block * threads() + tid(), step = count * threads();
	u64 at = slot_of(x, op), slot[R];
	slots_of(x, at, slot);
	for (u32 i = first; i < items; i += step)
		push_to(x, x.others, at, i, in[i], op);
	for (u32 i = first; i < items; i += step) {
		u32x4 data[R];
		set_own(x, in[i], data);
		if (!pull_items<R>(x, slot, ALL & ~(1u << x.rank), i, op, PHASE_SCATTER, data))
			break;
		out[i] = sum_items<R>(data);
	}
	end_op(x, block, count, op);
}

// Adds the residual to one row's sums, which take_item yields, and normalises.
// K is how many items a thread has.
template <u32 K, typename Take>
DEVICE bool finish_row(const Fusion &f, u32 row, u32 items, u32x4 *shared_row, float *parts, Take take_item)
{
	u32x4 weight[K], residual[K];
	bool whole = true;
#pragma unroll
	for (u32 k = 0; k < K; k++)
		if (u32 i = tid() + k * threads(); i < items) {
			weight[k] = f.weight[i];
			residual[k] = f.residual[(u64)row * items + i];
		}
#pragma unroll
	for (u32 k = 0; k < K; k++)
		if (u32 i = tid() + k * threads(); i < items) {
			u32x4 sum;
			whole = whole && take_item(i, sum);
			residual[k] = add_item(residual[k], sum);
			shared_row[i] = residual[k];
			f.residual[(u64)row * items + i] = residual[k];
		}
	sync_block();
	float inv = row_inverse_rms((const u16 *)shared_row, items * 8, f.inverse_cols, f.eps, parts);
#pragma unroll
	for (u32 k = 0; k < K; k++)
		if (u32 i = tid() + k * threads(); i < items)
			f.normed[(u64)row * items + i] = norm_item(residual[k], weight[k], inv);
	sync_block();
	return whole;
}

template <u32 K>
DEVICE void one_shot_norm(const Exchange &x, u32 block, u32 count, const u32x4 *in, const Fusion &f, u32 rows, u32 items)
{
	__shared__ u32x4 shared_row[K * 1024];
	__shared__ float parts[MAX_SEGMENTS];
	u32 op = begin_op(x, block);
	u64 at = slot_of(x, op), slot[R];
	slots_of(x, at, slot);
	for (u32 row = block; row < rows; row += count)
		for (u32 i = tid(); i < items; i += threads())
			push_to(x, x.others, at, row * items + i, in[(u64)row * items + i], op);
	bool going = true;
	for (u32 row = block; row < rows && going; row += count) {
		going = finish_row<K>(f, row, items, shared_row, parts, [&](u32 i, u32x4 &sum) {
			u32x4 data[R];
			set_own(x, in[(u64)row * items + i], data);
			bool ok = pull_items<R>(x, slot, ALL & ~(1u << x.rank), row * items + i, op, PHASE_SCATTER, data);
			sum = sum_items<R>(data);
			return ok;
		});
		going = all_in_block(going);
	}
	end_op(x, block, count, op);
}

// Chunk r, the part of the items that rank r sums.
DEVICE u32 chunk_items(u32 items) { return ((items + R - 1) / R + 31) & ~31u; }

DEVICE bool scatter_and_sum(const Exchange &x, u32 block, u32 count, const u32x4 *in, u32 items, u32 op)
{
	u32 first = block * threads() + tid(), step = count * threads(), chunk = chunk_items(items);
	u64 at = slot_of(x, op), slot[R];
	slots_of(x, at, slot);
#pragma unroll
	for (u32 r = 0; r < R; r++) {
		if (r == x.rank)
			continue;
		u32 end = (r + 1) * chunk < items ? (r + 1) * chunk : items;
		for (u32 i = r * chunk + first; i < end; i += step)
			push_item(x.push[r] + at, i, in[i], op);
	}
	u32 end = (x.rank + 1) * chunk < items ? (x.rank + 1) * chunk : items;
	for (u32 i = x.rank * chunk + first; i < end; i += step) {
		u32x4 data[R];
		set_own(x, in[i], data);
		if (!pull_items<R>(x, slot, ALL & ~(1u << x.rank), i, op, PHASE_SCATTER, data))
			return false;
		u32x4 sum = sum_items<R>(data);
		u64 gather = at + gather_packets(x);
		push_to(x, x.everyone, gather, i, sum, op);
	}
	return true;
}

// Reads the sum of one item from the slot of its owner.
DEVICE bool pull_sum(const Exchange &x, u64 gather, u32 chunk, u32 item, u32 op, u32x4 &sum)
{
	u64 slot[1] = {0};
	u32 owner = item / chunk;
#pragma unroll
	for (u32 r = 0; r < R; r++)
		if (r == owner)
			slot[0] = x.inbox[r] + gather;
	u32x4 data[1];
	bool ok = pull_items<1>(x, slot, 1, item, op, PHASE_GATHER, data);
	sum = data[0];
	return ok;
}

DEVICE void two_shot(const Exchange &x, u32 block, u32 count, const u32x4 *in, u32x4 *out, u32 items)
{
	u32 op = begin_op(x, block), chunk = chunk_items(items);
	if (scatter_and_sum(x, block, count, in, items, op)) {
		u64 gather = slot_of(x, op) + gather_packets(x);
		for (u32 i = block * threads() + tid(); i < items; i += count * threads()) {
			u32x4 sum;
			if (!pull_sum(x, gather, chunk, i, op, sum))
				break;
			out[i] = sum;
		}
	}
	end_op(x, block, count, op);
}

template <u32 K>
DEVICE void two_shot_norm(const Exchange &x, u32 block, u32 count, const u32x4 *in, const Fusion &f, u32 rows, u32 items)
{
	__shared__ u32x4 shared_row[K * 1024];
	__shared__ float parts[MAX_SEGMENTS];
	u32 op = begin_op(x, block), chunk = chunk_items(rows * items);
	bool going = all_in_block(scatter_and_sum(x, block, count, in, rows * items, op));
	u64 gather = slot_of(x, op) + gather_packets(x);
	for (u32 row = block; row < rows && going; row += count) {
		going = finish_row<K>(f, row, items, shared_row, parts, [&](u32 i, u32x4 &sum) {
			return pull_sum(x, gather, chunk, row * items + i, op, sum);
		});
		going = all_in_block(going);
	}
	end_op(x, block, count, op);
}

constexpr u32 TILE_ITEMS = 128; // 2 KB: four 16-byte accesses of a warp

DEVICE u32 *tile_flag(const Exchange &x, u64 slot, u32 tile) { return (u32 *)(slot + tile_flags(x)) + tile; }
DEVICE u32x4 *tile_data(const Exchange &x, u64 slot) { return (u32x4 *)(slot + plain_data(x)); }

DEVICE void write_tile(const Exchange &x, u64 at, u32 tile, const u32x4 *in, u32 items, u32 op)
{
	u32x4 data[4];
#pragma unroll
	for (u32 k = 0; k < 4; k++)
		if (u32 i = tile * TILE_ITEMS + k * 32 + lane(); i < items)
			data[k] = in[i];
#pragma unroll
	for (u32 r = 0; r < R; r++) {
		if (!(x.others >> r & 1))
			continue;
#pragma unroll
		for (u32 k = 0; k < 4; k++)
			if (u32 i = tile * TILE_ITEMS + k * 32 + lane(); i < items)
				store_volatile(tile_data(x, x.push[r] + at) + i, data[k]);
	}
	sync_warp();
	if (lane() < R && (x.others >> lane() & 1)) {
		u64 slot = 0;
#pragma unroll
		for (u32 r = 0; r < R; r++)
			if (r == lane())
				slot = x.push[r] + at;
		store_release(tile_flag(x, slot, tile), op);
	}
}

// Lane r waits for rank r's tile; false if the group aborted.
DEVICE bool await_tile(const Exchange &x, const u64 (&slot)[R], u32 tile, u32 op)
{
	bool here = true;
	if (lane() < R && lane() != x.rank) {
		u64 mine = 0, since = 0;
#pragma unroll
		for (u32 r = 0; r < R; r++)
			if (r == lane())
				mine = slot[r];
		const u32 *flag = tile_flag(x, mine, tile);
		for (u32 spins = 1; load_volatile(flag) != op; spins++)
			if ((spins & 15) == 0) {
				since = KEEP_WAITING(x, since, op, PHASE_FLAG, lane());
				if (since == GONE) {
					here = false;
					break;
				}
			}
		(void)load_acquire(flag); // orders the reads of the tile, once
	}
	here = all_in_warp(here);
	sync_warp(); // orders what the flags' readers saw before what other lanes read
	return here;
}

DEVICE void read_tile(const Exchange &x, const u64 (&slot)[R], u32 tile, const u32x4 *in, u32x4 *out, u32 items)
{
	u32x4 data[4][R];
#pragma unroll
	for (u32 k = 0; k < 4; k++)
		if (u32 i = tile * TILE_ITEMS + k * 32 + lane(); i < items) {
#pragma unroll
			for (u32 r = 0; r < R; r++)
				if (r != x.rank)
					data[k][r] = load_volatile(tile_data(x, slot[r]) + i);
			set_own(x, in[i], data[k]);
		}
#pragma unroll
	for (u32 k = 0; k < 4; k++)
		if (u32 i = tile * TILE_ITEMS + k * 32 + lane(); i < items)
			out[i] = sum_items<R>(data[k]);
}

// The first `writers` blocks write, the others read: a fence of a reader must
// not wait for the writes of its multiprocessor.
DEVICE void staged(const Exchange &x, u32 block, u32 count, const u32x4 *in, u32x4 *out, u32 items, u32 writers)
{
	u32 op = begin_op(x, block), tiles = (items + TILE_ITEMS - 1) / TILE_ITEMS, warps = threads() / 32;
	u64 at = slot_of(x, op), slot[R];
	slots_of(x, at, slot);
	if (block < writers) {
		for (u32 t = warp() * writers + block; t < tiles; t += warps * writers)
			write_tile(x, at, t, in, items, op);
	} else {
		u32 readers = count - writers;
		for (u32 t = warp() * readers + block - writers; t < tiles; t += warps * readers) {
			if (!await_tile(x, slot, t, op))
				break;
			read_tile(x, slot, t, in, out, items);
		}
	}
	end_op(x, block, count, op);
}

#if !defined(VIRTUAL) && !defined(OCTET_FORMS_ONLY)
#define OCTET_PLAIN(name, threads, ...)                                                                          \
	KERNEL void __launch_bounds__(threads) name(Exchange x, const u32x4 *in, u32x4 *out, u32 items, u32 writers) \
	{                                                                                                        \
		(void)writers;                                                                                   \
		__VA_ARGS__;                                                                                     \
	}
OCTET_PLAIN(all_reduce_one_shot, 1024, one_shot(x, bid(), blocks(), in, out, items))
OCTET_PLAIN(all_reduce_two_shot, 1024, two_shot(x, bid(), blocks(), in, out, items))
OCTET_PLAIN(all_reduce_staged, 512, staged(x, bid(), blocks(), in, out, items, writers))

// items counts those of one row.
#define OCTET_NORM(name, form, k)                                                                        \
	KERNEL void __launch_bounds__(1024) name(Exchange x, const u32x4 *in, Fusion f, u32 rows, u32 items) \
	{                                                                                                \
		form<k>(x, bid(), blocks(), in, f, rows, items);                                         \
	}
OCTET_NORM(all_reduce_one_shot_norm, one_shot_norm, 1)
OCTET_NORM(all_reduce_one_shot_norm_wide, one_shot_norm, 2)
OCTET_NORM(all_reduce_two_shot_norm, two_shot_norm, 1)
OCTET_NORM(all_reduce_two_shot_norm_wide, two_shot_norm, 2)
#elif defined(VIRTUAL)
// Virtual ranks for tests on one device: grid.y ranks in one cooperative launch.
struct VirtualRank {
	Exchange x;
	const u32x4 *in;
	u32x4 *out;
	Fusion f;
};
KERNEL void __launch_bounds__(512) virtual_ranks(const VirtualRank *ranks, u32 form, u32 rows, u32 items, u32 writers)
{
	const VirtualRank &v = ranks[bid_y()];
	Fusion f = v.f;
	f.inverse_cols = 1.0 / (items * 8.0);
	if (form == 0)
		one_shot(v.x, bid(), blocks(), v.in, v.out, rows * items);
	else if (form == 1)
		two_shot(v.x, bid(), blocks(), v.in, v.out, rows * items);
	else if (form == 2)
		staged(v.x, bid(), blocks(), v.in, v.out, rows * items, writers);
	else if (form == 3)
		one_shot_norm<1>(v.x, bid(), blocks(), v.in, f, rows, items);
	else
		two_shot_norm<1>(v.x, bid(), blocks(), v.in, f, rows, items);
}
#endif
