// Package collectives is the all-reduce and its relatives among the ranks of one
// group.
//
// A Communicator belongs to one rank. Every rank makes the same calls in the same
// order; each call is one operation, with a number that is part of every flag. A
// call returns when the rank has its result, or with an error after a bounded
// time: *transport.TimeoutError, *transport.MismatchError, or shm.ErrAborted.
// After an error the epoch is over and the communicator must be made anew.
//
// # Arithmetic
//
// A sum over ranks is taken in float32 along one binary tree that depends on the
// number of ranks alone: neighbours are added level by level, an odd one is
// carried up, so eight ranks are ((0+1)+(2+3))+((4+5)+(6+7)). Every exact
// algorithm yields the bits of that sum, whatever the size, the row's position in
// the batch or the epoch. The fused form adds the residual to the sum, in float32,
// and normalises the result with the squares summed as kernels/cpu does; the
// unfused sequence yields the same bits. Where the group has one residual, the sum goes
// straight into it, squared on the way, and each row is normalised while it is near.
//
// # Algorithms
//
// An Algorithm is data: what it admits, and Program, the steps each rank takes. The
// communicator compiles a program once per payload and executes it; a simulator
// reads the same steps; tests compare the trace of a run with them. There is one
// algorithm per file, named by its mechanism:
//
//	central          ranks share CPUs: the last to arrive sums, one wake for all
//	one-shot         each rank reads all partials in place and sums for itself
//	packets          one-shot by pushing, flags in the data
//	shared two-shot  one memory: each rank sums one shard into the common result
//	two-shot         shards pushed to their owners, sums pushed to everybody
//	hierarchical     two-shot within islands, owners exchange float32 sums across
//	pipelined hierarchical  the same in chunks, the phases at the same time
//	ring             2(N-1) steps; not exact, chosen only when the user says so
//
// Which one reduces which payload is a Plan. Policy makes it, as a pure function of
// the group's Shape, the Verdict of Probe (a path that delivered wrong data is used
// by no plan), and what Tune measured. Ranks with different plans fail at their
// first operation: the plan's hash begins the rolling hash of operations.
//
// # Memory
//
// Partial is slab memory of the transport, in which the producer writes its partial
// sum in place. Results lie in slab memory too, without a copy. They are valid until
// the next call but one, and they are read only: other ranks may be reading the same
// memory. Nothing is allocated on the path of AllReduce, AllReduceAddNorm, Broadcast
// and Barrier once a payload's program is compiled.
package collectives
