// Package board is the round plane: one segment of shared memory through which
// the coordinator tells all ranks of a group what to run next, and through
// which they answer.
//
// # A round
//
// The coordinator publishes one frame (package round) and wakes every rank by
// one shared word. Each rank runs it and answers in its own seat: the number of
// the round and its operation hash; rank 0 leaves the result first. The rank
// that finishes last, by a shared count, rings the one doorbell the coordinator
// waits on. No lock is taken and no message is sent; a frame stays in place until
// all ranks have answered, so one buffer does.
//
// # Who writes what
//
// The coordinator writes the frame and the drain word; a rank writes its seat;
// rank 0 writes the result; anyone may raise the abort word. Different writers are
// two cache lines apart. Every frame carries epoch and round number, and every
// epoch has a segment of its own, so that a process left over from an old epoch
// can write nothing that the new one reads.
//
// # Waiting
//
// A rank waits on the thread that runs the engine, in raw system calls of a
// few milliseconds with a preemption point between them (see internal/shm), and in
// ordinary ones once it has been idle for a while. The coordinator waits raw for
// the first of these only: it has clients to serve. Where there is a processor for
// each, both poll for some microseconds first (Config.Spin). Every wait ends on abort;
// the coordinator's also ends when no rank that owes an answer makes progress.
//
// # Hashes
//
// A rank records every operation in its seat (Seat.Op): a rolling hash and a
// short trace. When the hashes of a round differ, the traces tell which rank
// went another way, and at which operation.
package board
