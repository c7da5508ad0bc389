// All-reduce of bf16 over RANKS ranks; this file is compiled once for each
// number of ranks. Every form gives the bits of the contract: float32 along a
// binary tree over the ranks, one rounding. Sizes count words of two values.
//
// one_shot (packets): every rank writes its data to every other and sums all.
// two_shot (packets): rank r sums chunk r and writes the sum to all.
// staged (flags): as one_shot, but plain data in tiles with a flag each: three
// quarters of the bytes of packets for a fence and one more trip. Blocks that
// write and blocks that read run side by side, so both directions of a link are
// in use.
//
// On the host path all ranks write to and read from host memory: what one rank
// writes is read by all, so the masks of the exchange name one target.
#include "exchange.cuh"
#include "norm.cuh"

constexpr u32 R = RANKS;

struct Fusion {
	u32 *residual;       // [rows, words] in and out
	const u32 *weight;   // [words]
	u32 *normed;         // [rows, words] out
	InverseCols inverse_cols; // of a row
	float eps;
	u32 pad;
};

DEVICE void push_to(const Exchange &x, u32 targets, u64 at, u32 packet, Words v, u32 op)
{
#pragma unroll
	for (u32 r = 0; r < R; r++)
		if (targets >> r & 1)
			push_packet(x.push[r] + at, packet, v, op);
}

DEVICE void slots_of(const Exchange &x, u64 at, u64 (&slot)[R])
{
#pragma unroll
	for (u32 r = 0; r < R; r++)
		slot[r] = x.inbox[r] + at;
}

// Takes the packets of all other ranks and this rank's own data, and sums.
DEVICE bool pull_and_sum(const Exchange &x, const u64 (&slot)[R], u32 packet, u32 op, Words own, Words &sum)
{
	constexpr u32 all = (1u << R) - 1;
	Words data[R];
#pragma unroll
	for (u32 r = 0; r < R; r++)
		if (r == x.rank)
			data[r] = own;
	bool here = pull_packets<R>(x, slot, all & ~(1u << x.rank), packet, op, PHASE_SCATTER, data);
	sum = sum_words<R>(data);
	return here;
}

DEVICE void one_shot(const Exchange &x, u32 block, u32 count, const u32 *in, u32 *out, u32 words)
{
	u32 op = begin_op(x, block), first = block * threads() + tid(), step = count * threads(), packets = packets_of(words);
	u64 at = slot_of(x, op), slot[R];
	slots_of(x, at, slot);
	for (u32 p = first; p < packets; p += step)
		push_to(x, x.others, at, p, load_words(in, p, words), op);
	for (u32 p = first; p < packets; p += step) {
		Words sum;
		if (!pull_and_sum(x, slot, p, op, load_words(in, p, words), sum))
			break;
		store_words(out, p, words, sum);
	}
	end_op(x, block, count, op);
}

// Zeros what the norm reads beyond the end of a row.
DEVICE void pad_row(u32 *row, u32 words)
{
	u32 end = (words + SEGMENT_WORDS - 1) & ~(SEGMENT_WORDS - 1);
	for (u32 i = words + tid(); i < end; i += threads())
		row[row_word(i)] = 0;
}

// Adds the residual to one row's sums, which take(packet, sum) yields, and
// normalises. K is how many packets a thread has.
template <u32 K, typename Take>
DEVICE bool finish_row(const Fusion &f, u32 row, u32 words, u32 *shared_row, float *parts, Take take)
{
	u32 packets = packets_of(words);
	u32 *residual_row = f.residual + (u64)row * words;
	Words weight[K], v[K];
	bool whole = true;
#pragma unroll
	for (u32 k = 0; k < K; k++)
		if (u32 p = tid() + k * threads(); p < packets) {
			weight[k] = load_words(f.weight, p, words);
			v[k] = load_words(residual_row, p, words);
		}
#pragma unroll
	for (u32 k = 0; k < K; k++)
		if (u32 p = tid() + k * threads(); p < packets) {
			Words sum;
			whole = whole && take(p, sum);
#pragma unroll
			for (u32 j = 0; j < PACKET_WORDS; j++) {
				v[k].w[j] = add_pair(v[k].w[j], sum.w[j]);
				if (p * PACKET_WORDS + j < words)
					shared_row[row_word(p * PACKET_WORDS + j)] = v[k].w[j];
			}
			store_words(residual_row, p, words, v[k]);
		}
	sync_block();
	float inv = row_inverse_rms(shared_row, words * 2, f.inverse_cols, f.eps, parts);
#pragma unroll
	for (u32 k = 0; k < K; k++)
		if (u32 p = tid() + k * threads(); p < packets) {
#pragma unroll
			for (u32 j = 0; j < PACKET_WORDS; j++)
				v[k].w[j] = norm_pair(v[k].w[j], weight[k].w[j], inv);
			store_words(f.normed + (u64)row * words, p, words, v[k]);
		}
	return whole;
}

// A block takes whole rows; packets do not cross rows.
template <u32 K>
DEVICE void one_shot_norm(const Exchange &x, u32 block, u32 count, const u32 *in, const Fusion &f, u32 rows, u32 words)
{
	__shared__ u32 shared_row[row_words(K * 1024 * PACKET_WORDS)];
	__shared__ float parts[MAX_SEGMENTS];
	u32 op = begin_op(x, block), packets = packets_of(words);
	u64 at = slot_of(x, op), slot[R];
	slots_of(x, at, slot);
	for (u32 row = block; row < rows; row += count)
		for (u32 p = tid(); p < packets; p += threads())
			push_to(x, x.others, at, row * packets + p, load_words(in + (u64)row * words, p, words), op);
	pad_row(shared_row, words);
	bool going = true;
	for (u32 row = block; row < rows && going; row += count) {
		going = finish_row<K>(f, row, words, shared_row, parts, [&](u32 p, Words &sum) {
			return pull_and_sum(x, slot, row * packets + p, op, load_words(in + (u64)row * words, p, words), sum);
		});
		going = all_in_block(going);
	}
	end_op(x, block, count, op);
}

// Chunk r, the part of the packets that rank r sums.
DEVICE u32 chunk_of(u32 packets) { return (packets + R - 1) / R; }

// Packets do not cross rows: packet p is number p % packets_of(words) of its row.
DEVICE bool scatter_and_sum(const Exchange &x, u32 block, u32 count, const u32 *in, u32 rows, u32 words, u32 op)
{
	u32 first = block * threads() + tid(), step = count * threads();
	u32 of_row = packets_of(words), packets = rows * of_row, chunk = chunk_of(packets);
	auto load = [&](u32 p) { return load_words(in + (u64)(p / of_row) * words, p % of_row, words); };
	u64 at = slot_of(x, op), slot[R];
	slots_of(x, at, slot);
#pragma unroll
	for (u32 r = 0; r < R; r++) {
		if (r == x.rank)
			continue;
		u32 end = (r + 1) * chunk < packets ? (r + 1) * chunk : packets;
		for (u32 p = r * chunk + first; p < end; p += step)
			push_packet(x.push[r] + at, p, load(p), op);
	}
	u32 end = (x.rank + 1) * chunk < packets ? (x.rank + 1) * chunk : packets;
	for (u32 p = x.rank * chunk + first; p < end; p += step) {
		Words sum;
		if (!pull_and_sum(x, slot, p, op, load(p), sum))
			return false;
		push_to(x, x.everyone, at + gather_packets(x), p, sum, op);
	}
	return true;
}

// Reads one packet of sums from the slot of its owner.
DEVICE bool pull_sum(const Exchange &x, u64 gather, u32 chunk, u32 packet, u32 op, Words &sum)
{
	u64 slot[1] = {0};
	u32 owner = packet / chunk;
#pragma unroll
	for (u32 r = 0; r < R; r++)
		if (r == owner)
			slot[0] = x.inbox[r] + gather;
	Words data[1];
	bool ok = pull_packets<1>(x, slot, 1, packet, op, PHASE_GATHER, data);
	sum = data[0];
	return ok;
}

DEVICE void two_shot(const Exchange &x, u32 block, u32 count, const u32 *in, u32 *out, u32 words)
{
	u32 op = begin_op(x, block), packets = packets_of(words), chunk = chunk_of(packets);
	if (scatter_and_sum(x, block, count, in, 1, words, op)) {
		u64 gather = slot_of(x, op) + gather_packets(x);
		for (u32 p = block * threads() + tid(); p < packets; p += count * threads()) {
			Words sum;
			if (!pull_sum(x, gather, chunk, p, op, sum))
				break;
			store_words(out, p, words, sum);
		}
	}
	end_op(x, block, count, op);
}

template <u32 K>
DEVICE void two_shot_norm(const Exchange &x, u32 block, u32 count, const u32 *in, const Fusion &f, u32 rows, u32 words)
{
	__shared__ u32 shared_row[row_words(K * 1024 * PACKET_WORDS)];
	__shared__ float parts[MAX_SEGMENTS];
	u32 op = begin_op(x, block), packets = packets_of(words), chunk = chunk_of(rows * packets);
	bool going = all_in_block(scatter_and_sum(x, block, count, in, rows, words, op));
	u64 gather = slot_of(x, op) + gather_packets(x);
	pad_row(shared_row, words);
	for (u32 row = block; row < rows && going; row += count) {
		going = finish_row<K>(f, row, words, shared_row, parts, [&](u32 p, Words &sum) {
			return pull_sum(x, gather, chunk, row * packets + p, op, sum);
		});
		going = all_in_block(going);
	}
	end_op(x, block, count, op);
}

constexpr u32 TILE = 512; // items of 16 bytes: 8 KB

DEVICE u32 *tile_flag(const Exchange &x, u64 slot, u32 tile) { return (u32 *)(slot + tile_flags(x)) + tile; }
DEVICE u32x4 *tile_data(const Exchange &x, u64 slot) { return (u32x4 *)(slot + plain_data(x)); }

// All threads of the block write a tile; one puts up the flags.
DEVICE void write_tile(const Exchange &x, u64 at, u32 begin, u32 end, u32 tile, const u32x4 *in, u32 op)
{
	for (u32 i = begin + tid(); i < end; i += threads()) {
		u32x4 v = in[i];
#pragma unroll
		for (u32 r = 0; r < R; r++)
			if (x.others >> r & 1)
				store_atomic(tile_data(x, x.push[r] + at) + i, v);
	}
	sync_block();
	if (tid() == 0) {
		fence_system();
#pragma unroll
		for (u32 r = 0; r < R; r++)
			if (x.others >> r & 1)
				store_volatile(tile_flag(x, x.push[r] + at, tile), op);
	}
}

// Thread r waits for rank r's tile; false if the group aborted.
DEVICE bool await_tile(const Exchange &x, const u64 (&slot)[R], u32 tile, u32 op)
{
	bool here = true;
	if (tid() < R && tid() != x.rank) {
		u64 mine = 0, since = 0;
#pragma unroll
		for (u32 r = 0; r < R; r++)
			if (r == tid())
				mine = slot[r];
		const u32 *flag = tile_flag(x, mine, tile);
		for (u32 spins = 1; load_volatile(flag) != op; spins++)
			if ((spins & 15) == 0) {
				since = KEEP_WAITING(x, since, op, PHASE_FLAG, tid());
				if (since == GONE) {
					here = false;
					break;
				}
			}
		(void)load_acquire(flag); // orders the reads of the tile, once
	}
	return all_in_block(here);
}

DEVICE void read_tile(const Exchange &x, const u64 (&slot)[R], u32 begin, u32 end, const u32x4 *in, u32x4 *out)
{
	for (u32 i = begin + tid(); i < end; i += threads()) {
		u32x4 data[R];
#pragma unroll
		for (u32 r = 0; r < R; r++)
			data[r] = r == x.rank ? in[i] : load_atomic(tile_data(x, slot[r]) + i);
		u32x4 sum;
#define OCTET_SUM(field)                                        \
	{                                                       \
		u32 pair[R];                                    \
		_Pragma("unroll") for (u32 r = 0; r < R; r++)   \
			pair[r] = data[r].field;                \
		sum.field = sum_pair(pair);                     \
	}
		OCTET_SUM(x)
		OCTET_SUM(y)
		OCTET_SUM(z)
		OCTET_SUM(w)
#undef OCTET_SUM
		out[i] = sum;
	}
}

// Items are cut into as many tiles as there are writers, or into more if those
// would be large. The first `writers` blocks write, the others read: a fence
// waits for all writes of its multiprocessor.
DEVICE void staged(const Exchange &x, u32 block, u32 count, const u32x4 *in, u32x4 *out, u32 items, u32 writers)
{
	u32 op = begin_op(x, block), readers = count - writers;
	u32 size = ((items + writers - 1) / writers + 31) & ~31u;
	if (size > TILE)
		size = TILE;
	u32 tiles = (items + size - 1) / size;
	u64 at = slot_of(x, op), slot[R];
	slots_of(x, at, slot);
	bool writes = block < writers;
	for (u32 t = writes ? block : block - writers; t < tiles; t += writes ? writers : readers) {
		u32 begin = t * size, end = begin + size < items ? begin + size : items;
		if (writes)
			write_tile(x, at, begin, end, t, in, op);
		else if (await_tile(x, slot, t, op))
			read_tile(x, slot, begin, end, in, out);
		else
			break;
	}
	end_op(x, block, count, op);
}

#if !defined(VIRTUAL) && !defined(OCTET_FORMS_ONLY)
KERNEL void __launch_bounds__(1024) all_reduce_one_shot(Exchange x, const u32 *in, u32 *out, u32 words, u32)
{
	one_shot(x, bid(), blocks(), in, out, words);
}
KERNEL void __launch_bounds__(1024) all_reduce_two_shot(Exchange x, const u32 *in, u32 *out, u32 words, u32)
{
	two_shot(x, bid(), blocks(), in, out, words);
}
KERNEL void __launch_bounds__(1024) all_reduce_staged(Exchange x, const u32x4 *in, u32x4 *out, u32 words, u32 writers)
{
	staged(x, bid(), blocks(), in, out, words / 4, writers);
}

// words counts those of one row.
#define OCTET_NORM(name, form, k)                                                                      \
	KERNEL void __launch_bounds__(1024) name(Exchange x, const u32 *in, Fusion f, u32 rows, u32 words) \
	{                                                                                              \
		form<k>(x, bid(), blocks(), in, f, rows, words);                                       \
	}
OCTET_NORM(all_reduce_one_shot_norm_1, one_shot_norm, 1)
OCTET_NORM(all_reduce_one_shot_norm_2, one_shot_norm, 2)
OCTET_NORM(all_reduce_one_shot_norm_3, one_shot_norm, 3)
OCTET_NORM(all_reduce_two_shot_norm_1, two_shot_norm, 1)
OCTET_NORM(all_reduce_two_shot_norm_2, two_shot_norm, 2)
OCTET_NORM(all_reduce_two_shot_norm_3, two_shot_norm, 3)
#elif defined(VIRTUAL)
// Virtual ranks for tests on one device: grid.y ranks in one cooperative launch.
struct VirtualRank {
	Exchange x;
	const u32 *in;
	u32 *out;
	Fusion f;
};
KERNEL void __launch_bounds__(512) virtual_ranks(const VirtualRank *ranks, u32 form, u32 rows, u32 words, u32 writers)
{
	const VirtualRank &v = ranks[bid_y()];
	Fusion f = v.f;
	double inverse = 1.0 / (words * 2.0);
	f.inverse_cols.high = (float)inverse;
	f.inverse_cols.rest = (float)(inverse - f.inverse_cols.high);
	if (form == 0)
		one_shot(v.x, bid(), blocks(), v.in, v.out, rows * words);
	else if (form == 1)
		two_shot(v.x, bid(), blocks(), v.in, v.out, rows * words);
	else if (form == 2)
		staged(v.x, bid(), blocks(), (const u32x4 *)v.in, (u32x4 *)v.out, rows * words / 4, writers);
	else if (form == 3)
		one_shot_norm<1>(v.x, bid(), blocks(), v.in, f, rows, words);
	else
		two_shot_norm<1>(v.x, bid(), blocks(), v.in, f, rows, words);
}
#endif
