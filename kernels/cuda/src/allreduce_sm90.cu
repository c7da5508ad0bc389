// Forms of the all-reduce that use what came with sm_90. Compiled once for each
// number of ranks, like allreduce.cu.
//
// one_shot_norm with a cluster of blocks a row: each block takes a piece of the
// row, that begins at a segment of the norm, and sends the sums of its segments
// to all blocks of the cluster. They go as asynchronous stores that count down a
// barrier of the receiver: a barrier of the cluster would wait for the packets
// that are still on their way to the peers. One block alone would take longer to
// push and poll the packets of a row.
#define OCTET_FORMS_ONLY
#include "allreduce.cu"
#include "barrier.cuh"

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
DEVICE void init_barrier(u64 *b)
{
	asm volatile("mbarrier.init.shared.b64 [%0], 1;\n\tfence.mbarrier_init.release.cluster;" ::"r"(shared_address(b)) : "memory");
}
// Stores v where p is in the shared memory of another block of the cluster, and
// counts four bytes at its barrier b.
DEVICE void send_to_block(u32 block, float *p, u64 *b, float v)
{
	u32 there, barrier;
	asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(p)), "r"(block));
	asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(barrier) : "r"(shared_address(b)), "r"(block));
	asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(there), "r"(as_bits(v)),
		     "r"(barrier) : "memory");
}

// A cluster takes one row at a time, a block `words / size` words of it, in
// packets that do not cross blocks, one a thread.
KERNEL void __launch_bounds__(1024) all_reduce_one_shot_norm_cluster(Exchange x, const u32 *in, Fusion f, u32 rows, u32 words)
{
	__shared__ u32 shared_row[row_words(1024 * PACKET_WORDS)];
	__shared__ float parts[2][MAX_SEGMENTS]; // of even and odd rows: a block can be one row ahead
	__shared__ u64 arrived[2];
	if (tid() == 0) {
		init_barrier(&arrived[0]);
		init_barrier(&arrived[1]);
	}
	arrive_cluster(); // the others' barriers must be ready before anything is sent
	u32 op = begin_op(x, bid()), size = cluster_size(), cluster = bid() / size, clusters = blocks() / size;
	u32 piece = words / size, at_word = cluster_rank() * piece, packets = packets_of(piece);
	bool mine = tid() < packets, going = true;
	u64 at = slot_of(x, op), slot[R];
	slots_of(x, at, slot);
	if (mine)
		for (u32 row = cluster; row < rows; row += clusters)
			push_to(x, x.others, at, (row * size + cluster_rank()) * packets + tid(),
				load_words(in + (u64)row * words + at_word, tid(), piece), op);
	u32 turn = 0, segments = words / SEGMENT_WORDS;
	for (u32 row = cluster; row < rows; row += clusters, turn++) {
		u64 begin = (u64)row * words + at_word;
		Words v, weight;
		if (mine) {
			weight = load_words(f.weight + at_word, tid(), piece);
			v = load_words(f.residual + begin, tid(), piece);
			Words sum, own = load_words(in + begin, tid(), piece);
			// After an abort the rows that are left are nonsense, at once.
			if (going)
				going = pull_and_sum(x, slot, (row * size + cluster_rank()) * packets + tid(), op, own, sum);
#pragma unroll
			for (u32 j = 0; j < PACKET_WORDS; j++) {
				v.w[j] = add_pair(v.w[j], sum.w[j]);
				if (tid() * PACKET_WORDS + j < piece)
					shared_row[row_word(tid() * PACKET_WORDS + j)] = v.w[j];
			}
		}
		sync_block();
		u32 first = at_word / SEGMENT_WORDS;
		if (row == cluster)
			await_cluster();
		if (tid() == 0)
			arrive_expecting(&arrived[turn & 1], segments * 4);
		segment_squares(shared_row, piece / SEGMENT_WORDS, [&](u32 s, u32 i, float sum) {
			if (i < size)
				send_to_block(i, &parts[turn & 1][first + s], &arrived[turn & 1], sum);
		});
		if (mine)
			store_words(f.residual + begin, tid(), piece, v);
		await_phase(&arrived[turn & 1], turn >> 1 & 1);
		float inv = inverse_rms(total_squares(parts[turn & 1], segments), f.inverse_cols.high, f.inverse_cols.rest, f.eps);
		if (mine) {
#pragma unroll
			for (u32 j = 0; j < PACKET_WORDS; j++)
				v.w[j] = norm_pair(v.w[j], weight.w[j], inv);
			store_words(f.normed + begin, tid(), piece, v);
		}
	}
	if (cluster >= rows)
		await_cluster();
	end_op(x, bid(), blocks(), op);
	// No block leaves while another can still send to it: it has had all it waits for.
}
