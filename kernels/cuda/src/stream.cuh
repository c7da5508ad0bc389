// Products whose weights flow through a ring in shared memory, for sm_90 and up.
//
// One block a processor: four more warps ask the copy engine for lines of weights,
// and of the rows beside them, ahead of the eight that multiply, and go on from
// tile to tile without a pause. (One warp asks for a line in 45 ns, so lines of a
// kilobyte keep one busy.) The first weights are under way before the kernel in
// front has ended. Tiles are dealt out evenly and in order. Warp w multiplies what
// it does in `multiply`, in the same order, so the bits are the same, however many
// tiles share the rows and however deep the ring is.
#pragma once
#include "barrier.cuh"
#include "product.cuh"

DEVICE void init_barrier(u64 *b, u32 arrivals)
{
	asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals) : "memory");
}
DEVICE void arrive(u64 *b) { asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(b)) : "memory"); }
// Barriers that were just made, and memory that was just read, for the copy engine.
DEVICE void fence_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
DEVICE void copy_line(void *to, const void *from, u32 bytes, u64 *done)
{
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
		     "l"(from), "r"(bytes), "r"(shared_address(done)) : "memory");
}
DEVICE u32 dynamic_shared_bytes()
{
	u32 n;
	asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(n));
	return n;
}
// Until all that came before this kernel has ended and can be seen.
DEVICE void await_turn() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
DEVICE void sync_multipliers() { asm volatile("bar.sync 1, 256;" ::: "memory"); }

// A k-block of each format, the piece of a row that one warp takes at a time:
// columns, bytes of weights, bytes of x. Lines are as far apart in shared memory
// as lets a quarter of a warp read without bank conflicts.
template <u32 FORMAT> struct KBlock {
	static constexpr u32 COLUMNS = FORMAT == PLAIN_BF16 ? 32 : 128, WEIGHT = FORMAT == FP8_BLOCK ? 128 : 64, X = COLUMNS * 2;
	static constexpr u32 WEIGHT_PAD = 64, X_PAD = FORMAT == PLAIN_BF16 ? 64 : 16;
};

constexpr u32 ASKERS = 4; // warps
constexpr u32 MAX_STAGES = 16, BARRIER_BYTES = 2 * MAX_STAGES * 8;

// The ring: a stage holds U k-blocks a warp of 16 MT outputs and 8N rows.
template <u32 FORMAT, u32 N, u32 MT, u32 U> struct Ring {
	using Block = KBlock<FORMAT>;
	static constexpr u32 BLOCKS = WARPS * U; // k-blocks a stage
	static constexpr u32 WEIGHT_PITCH = BLOCKS * Block::WEIGHT + Block::WEIGHT_PAD, X_PITCH = BLOCKS * Block::X + Block::X_PAD;
	static constexpr u32 X_AT = MT * TILE_OUT * WEIGHT_PITCH, STAGE = X_AT + N * 8 * X_PITCH;
	static constexpr u32 AT_ONCE = N * MT <= 8 ? MT : 8 / N; // tiles whose parts are added up together
	static constexpr u32 PART = WARPS * N * 8 * TILE_OUT, PARTS = AT_ONCE * PART * 4;
};

// What a stage holds: k-blocks [begin, begin + count) of `tiles` tiles from `tile` on.
struct Cursor {
	u32 tile, tiles, begin, count;
	u32 which, row; // the product, and the first of its outputs
};

// Products of the same rows by matrices of the same width, in one launch. Their
// tiles are counted through: those of product i end before ends[i]. Places that are
// not used repeat the last.
constexpr u32 JOINT = 3;
struct Products {
	Product of[JOINT];
	u32 ends[JOINT];
	u32 pad;
};

// One block's share of them: tiles [first tile, last) in groups of up to MT.
template <u32 FORMAT, u32 N, u32 MT, u32 U> struct Stream {
	using R = Ring<FORMAT, N, MT, U>;
	using Block = KBlock<FORMAT>;

	const Products &all;
	u8 *shared;
	u32 first, rows;   // of x
	u32 stages, last;  // tile
	u32 blocks;        // k-blocks of a tile

	METHOD Cursor start(u32 tile) const
	{
		u32 which = 0, from = 0, end = all.ends[0];
#pragma unroll
		for (u32 i = 1; i < JOINT; i++)
			if (tile >= all.ends[i - 1] && all.ends[i] > all.ends[i - 1]) {
				which = i;
				from = all.ends[i - 1];
				end = all.ends[i];
			}
		return Cursor{tile, least(MT, least(last, end) - tile), 0, least(R::BLOCKS, blocks), which, (tile - from) * TILE_OUT};
	}
	// Calls f with a product. Parameters have no address, so no index either.
	template <typename F> METHOD void with(u32 which, F f) const
	{
#pragma unroll
		for (u32 i = 0; i < JOINT; i++)
			if (which == i)
				f(all.of[i]);
	}
	METHOD void next(Cursor &c) const
	{
		c.begin += c.count;
		if (c.begin == blocks)
			c = start(c.tile + c.tiles);
		else
			c.count = least(R::BLOCKS, blocks - c.begin);
	}
	METHOD u64 *full(u32 slot) const { return (u64 *)shared + slot; }
	METHOD u64 *empty(u32 slot) const { return full(MAX_STAGES + slot); }
	METHOD float *parts() const { return (float *)(shared + BARRIER_BYTES); }
	METHOD u8 *stage(u32 slot) const { return shared + BARRIER_BYTES + R::PARTS + slot * R::STAGE; }

	// The first line of this lane: warps take lines in turn.
	METHOD u32 asker() const { return warp() - WARPS + lane() * ASKERS; }
	METHOD void request_weights(const Cursor &c, u32 slot) const
	{
		u32 bytes = c.count * Block::WEIGHT, lines = c.tiles * TILE_OUT;
		if (warp() == WARPS) {
			if (lane() == 0)
				arrive_expecting(full(slot), lines * bytes + rows * c.count * Block::X);
			sync_warp();
		}
		const u8 *data = nullptr;
		u32 stride = 0;
		with(c.which, [&](const Product &p) {
			data = p.w.data;
			stride = p.w.data_stride;
		});
		const u8 *from = data + (u64)c.row * stride + c.begin * Block::WEIGHT;
		for (u32 r = asker(); r < lines; r += ASKERS * 32)
			copy_line(stage(slot) + r * R::WEIGHT_PITCH, from + (u64)r * stride, bytes, full(slot));
	}
	METHOD void request_rows(const Cursor &c, u32 slot) const
	{
		const u16 *from = all.of[0].x + (u64)first * all.of[0].x_stride + c.begin * Block::COLUMNS;
		for (u32 r = asker(); r < rows; r += ASKERS * 32)
			copy_line(stage(slot) + R::X_AT + r * R::X_PITCH, from + (u64)r * all.of[0].x_stride, c.count * Block::X, full(slot));
	}

	// The warps that ask. Rows are what the kernel in front makes: they wait for it.
	METHOD void request_all(u32 tile) const
	{
		Cursor c = start(tile), ahead = c;
		u32 slot = 0;
		for (; slot < stages && ahead.tiles; slot++, next(ahead))
			request_weights(ahead, slot);
		await_turn();
		for (u32 s = 0; s < slot; s++, next(c))
			request_rows(c, s);
		for (u32 phase = 0; c.tiles; phase ^= 1)
			for (slot = 0; slot < stages && c.tiles; slot++, next(c)) {
				await_phase(empty(slot), phase);
				request_weights(c, slot);
				request_rows(c, slot);
			}
	}

	// One k-block of this warp, the one at `place` of a stage: block `at` of the weights.
	METHOD void multiply_block(float (&acc)[MT][N][4], const Cursor &c, const u8 *stage, u32 place, u32 at) const
	{
		const u8 *weights = stage + frag_row() * R::WEIGHT_PITCH + place * Block::WEIGHT + frag_part() * 16;
		const u8 *x = stage + R::X_AT + frag_row() * R::X_PITCH + place * Block::X;
		auto part = [](const u8 *from, u32 row, u32 pitch, u32 bytes) { return *(const u32x4 *)(from + row * pitch + bytes); };
		auto row_of = [&](u32 n, u32 k) { return part(x, n * 8, R::X_PITCH, k * 2); };
		u32x4 rows[N];
		if constexpr (FORMAT == PLAIN_BF16)
#pragma unroll
			for (u32 n = 0; n < N; n++)
				rows[n] = row_of(n, frag_part() * 8);
#pragma unroll
		for (u32 m = 0; m < MT; m++) {
			if (m >= c.tiles)
				break;
			auto low = [&](u32 bytes) { return part(weights, m * TILE_OUT, R::WEIGHT_PITCH, bytes); };
			auto high = [&](u32 bytes) { return part(weights, m * TILE_OUT + 8, R::WEIGHT_PITCH, bytes); };
			u32 row = c.row + m * TILE_OUT;
			if constexpr (FORMAT == PLAIN_BF16) {
				block_bf16<N>(acc[m], low(0), high(0), [&](u32 n, u32) { return rows[n]; });
			} else if constexpr (FORMAT == FP8_BLOCK) {
				const Product &p = all.of[0]; // matrices with scales are launched alone
				float scale = ((const float *)p.w.scale)[(u64)((p.w.row_phase + row) / 128) * p.w.scale_stride + at];
				block_fp8<N>(acc[m], {low(0), low(64)}, {high(0), high(64)}, scale, row_of);
			} else {
				const Product &p = all.of[0];
				const u16 *scale = (const u16 *)p.w.scale + (u64)(row + frag_row()) * p.w.scale_stride + at * 4 + frag_part();
				block_int4<N>(acc[m], low(0), high(0), scale[0], scale[(u64)8 * p.w.scale_stride], row_of);
			}
		}
	}

	// Adds the warps' sums of a group of tiles, and the bias, and stores them.
	METHOD void finish(const float (&acc)[MT][N][4], const Cursor &c) const
	{
#pragma unroll
		for (u32 from = 0; from < MT; from += R::AT_ONCE) {
			if (from >= c.tiles)
				break;
			u32 count = least(R::AT_ONCE, c.tiles - from);
#pragma unroll
			for (u32 m = 0; m < R::AT_ONCE; m++)
				if (m < count)
					store_part<N>(parts() + m * R::PART, acc[from + m]);
			sync_multipliers();
			with(c.which, [&](const Product &p) {
				for (u32 m = 0; m < count; m++)
					for (u32 i = tid(); i < N * 8 * TILE_OUT && i / TILE_OUT < rows; i += WARPS * 32)
						store_output(p, first + i / TILE_OUT, c.row + (from + m) * TILE_OUT + i % TILE_OUT,
							     sum_parts<N>(parts() + m * R::PART, i));
			});
			sync_multipliers();
		}
	}

	METHOD void multiply_all(u32 tile) const
	{
		u32 slot = 0, phase = 0;
		for (Cursor c = start(tile); c.tiles;) {
			float acc[MT][N][4] = {};
			Cursor group = c;
			do {
				await_phase(full(slot), phase);
#pragma unroll
				for (u32 u = 0; u < U; u++)
					if (u32 place = u * WARPS + warp(); place < c.count)
						multiply_block(acc, c, stage(slot), place, c.begin + place);
				sync_warp();
				if (lane() == 0)
					arrive(empty(slot));
				if (++slot == stages) {
					slot = 0;
					phase ^= 1;
				}
				next(c);
			} while (c.begin);
			finish(acc, group);
		}
	}
};

// grid: (any up to the tiles, ceil(rows/8N)), 384 threads.
template <u32 FORMAT, u32 N, u32 MT, u32 U> DEVICE void stream(const Products &all)
{
	using S = Stream<FORMAT, N, MT, U>;
	extern __shared__ u8 shared[] __attribute__((aligned(128)));
	u64 tiles = all.ends[JOINT - 1];
	u32 first = bid_y() * N * 8;
	S s{all, shared, first, least(N * 8, all.of[0].rows - first),
	    least(MAX_STAGES, (dynamic_shared_bytes() - BARRIER_BYTES - S::R::PARTS) / S::R::STAGE),
	    (u32)((bid() + 1) * tiles / blocks()), all.of[0].w.in / S::Block::COLUMNS};
	if (tid() < s.stages) {
		init_barrier(s.full(tid()), 1);
		init_barrier(s.empty(tid()), WARPS);
		fence_copies();
	}
	let_next_start();
	sync_block();
	if (warp() >= WARPS)
		s.request_all((u32)(bid() * tiles / blocks()));
	else
		s.multiply_all((u32)(bid() * tiles / blocks()));
}
