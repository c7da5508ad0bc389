// Forms of the all-reduce that use what came with sm_90. Compiled once for each
// number of ranks, like allreduce.cu.
//
// one_shot_norm with a cluster of blocks a row: each block takes a piece of the
// row, that begins at a segment of the norm, and the segments' sums meet in
// shared memory across the cluster. One block alone would take half a
// microsecond longer to push and poll the packets of a row.
//
// staged with the bulk copy engine: tiles go from shared memory to the slot and
// back in bursts larger than a warp's accesses.
#define OCTET_FORMS_ONLY
#include "allreduce.cu"

DEVICE u32 cluster_rank()
{
	u32 r;
	asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
	return r;
}
DEVICE u32 cluster_size()
{
	u32 r;
	asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(r));
	return r;
}
DEVICE void arrive_cluster() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
DEVICE void await_cluster() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
DEVICE u32 shared_address(const void *p)
{
	u32 a;
	asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(a) : "l"(p));
	return a;
}
// Writes v where p is in the shared memory of another block of the cluster.
DEVICE void store_in_block(float *p, u32 block, float v)
{
	u32 there;
	asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(p)), "r"(block));
	asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there), "f"(v) : "memory");
}

// A cluster takes one row at a time, a block `piece` items of it, a thread one.
KERNEL void __launch_bounds__(512) all_reduce_one_shot_norm_cluster(Exchange x, const u32x4 *in, Fusion f, u32 rows, u32 items)
{
	__shared__ u32x4 shared_row[512];
	__shared__ float parts[2][MAX_SEGMENTS];
	arrive_cluster(); // the others' shared memory must exist before it is written
	u32 op = begin_op(x, bid()), size = cluster_size(), cluster = bid() / size, clusters = blocks() / size;
	u32 piece = items / size, item = cluster_rank() * piece + tid();
	bool mine = tid() < piece, going = true;
	u64 at = slot_of(x, op), slot[R];
	slots_of(x, at, slot);
	for (u32 row = cluster; row < rows; row += clusters)
		if (mine)
			push_to(x, x.others, at, row * items + item, in[(u64)row * items + item], op);
	u32 turn = 0;
	for (u32 row = cluster; row < rows; row += clusters, turn ^= 1) {
		u64 i = (u64)row * items + item;
		u32x4 data[R], v, weight;
		if (mine) {
			weight = f.weight[item];
			v = f.residual[i];
			set_own(x, in[i], data);
			// After an abort the rows that are left are nonsense, at once.
			if (going)
				going = pull_items<R>(x, slot, ALL & ~(1u << x.rank), i, op, PHASE_SCATTER, data);
			v = add_item(v, sum_items<R>(data));
			shared_row[tid()] = v;
			f.residual[i] = v;
		}
		sync_block();
		u32 first = cluster_rank() * piece / (NORM_SEGMENT / 8);
		if (row == cluster)
			await_cluster();
		segment_squares((const u16 *)shared_row, piece * 8, [&](u32 s, float sum) {
			for (u32 b = 0; b < size; b++)
				store_in_block(&parts[turn][first + s], b, sum);
		});
		arrive_cluster();
		await_cluster();
		float inv = inverse_rms(total_squares(parts[turn], items * 8), f.inverse_cols, f.eps);
		if (mine)
			f.normed[i] = norm_item(v, weight, inv);
	}
	if (cluster >= rows)
		await_cluster();
	end_op(x, bid(), blocks(), op);
}

DEVICE void init_barrier(u64 *b) { asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_address(b)) : "memory"); }
DEVICE void expect_bytes(u64 *b, u32 bytes)
{
	asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes) : "memory");
}
DEVICE void wait_bytes(u64 *b, u32 phase)
{
	u32 done = 0;
	while (!done)
		asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
			     : "=r"(done) : "r"(shared_address(b)), "r"(phase) : "memory");
}
DEVICE void bulk_read(void *shared, const void *global, u32 bytes, u64 *b)
{
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(shared)),
		     "l"(global), "r"(bytes), "r"(shared_address(b)) : "memory");
}
DEVICE void bulk_write(void *global, const void *shared, u32 bytes)
{
	asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n\t"
		     "cp.async.bulk.commit_group;" ::"l"(global), "r"(shared_address(shared)), "r"(bytes) : "memory");
}

// As staged, with one warp a block and tiles of 2 KB. Two ranks only: a reader
// fetches the tile of one peer.
KERNEL void __launch_bounds__(32) all_reduce_bulk(Exchange x, const u32x4 *in, u32x4 *out, u32 items, u32 writers)
{
	__shared__ __attribute__((aligned(128))) u32x4 tile[TILE_ITEMS];
	__shared__ u64 arrived;
	u32 op = begin_op(x, bid()), tiles = (items + TILE_ITEMS - 1) / TILE_ITEMS;
	u64 at = slot_of(x, op), slot[R];
	slots_of(x, at, slot);
	if (lane() == 0) {
		init_barrier(&arrived);
		asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
	}
	sync_warp();
	u32 peer = x.rank ^ 1, phase = 0;
	if (bid() < writers) {
		for (u32 t = bid(); t < tiles; t += writers) {
			u32 count = items - t * TILE_ITEMS < TILE_ITEMS ? items - t * TILE_ITEMS : TILE_ITEMS;
			for (u32 k = lane(); k < count; k += 32)
				tile[k] = in[t * TILE_ITEMS + k];
			asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
			sync_warp();
			if (lane() == 0) {
				u64 target = 0;
#pragma unroll
				for (u32 r = 0; r < R; r++)
					if (x.others >> r & 1)
						target = x.push[r] + at;
				bulk_write(tile_data(x, target) + t * TILE_ITEMS, tile, count * 16);
				asm volatile("cp.async.bulk.wait_group 0;\n\tfence.proxy.async;" ::: "memory");
				store_release(tile_flag(x, target, t), op);
			}
			sync_warp();
		}
	} else {
		u32 readers = blocks() - writers;
		for (u32 t = bid() - writers; t < tiles; t += readers, phase ^= 1) {
			u32 count = items - t * TILE_ITEMS < TILE_ITEMS ? items - t * TILE_ITEMS : TILE_ITEMS;
			if (!await_tile(x, slot, t, op))
				break;
			u64 source = 0;
#pragma unroll
			for (u32 r = 0; r < R; r++)
				if (r == peer)
					source = slot[r];
			if (lane() == 0) {
				asm volatile("fence.proxy.async;" ::: "memory");
				expect_bytes(&arrived, count * 16);
				bulk_read(tile, tile_data(x, source) + t * TILE_ITEMS, count * 16, &arrived);
			}
			wait_bytes(&arrived, phase);
			for (u32 k = lane(); k < count; k += 32) {
				u32x4 data[R];
#pragma unroll
				for (u32 r = 0; r < R; r++)
					if (r == peer)
						data[r] = tile[k];
				set_own(x, in[t * TILE_ITEMS + k], data);
				out[t * TILE_ITEMS + k] = sum_items<R>(data);
			}
			sync_warp();
		}
	}
	end_op(x, bid(), blocks(), op);
}
