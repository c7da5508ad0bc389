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
// unfused sequence yields the same bits.
//
// # Memory
//
// Partial is slab memory of the transport, in which the producer writes its
// partial sum in place. Results lie in slab memory too, without a copy, and are
// valid until the next call but one. Nothing is allocated on the path of
// AllReduce, AllReduceAddNorm, Broadcast and Barrier.
package collectives
