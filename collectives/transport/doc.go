// Package transport is the memory and the flags through which the ranks of one
// group exchange data, and nothing of what they compute.
//
// A Group is one anonymous shared segment, made by the supervisor and inherited
// by every rank as a file descriptor. It holds, for each rank, double-buffered
// slabs and the words that say how far the rank has come. SharedMemory is one
// rank's end of it. Algorithms see the Transport interface: peer-to-peer
// mappings of devices and the wrappers that inject faults implement the same.
//
// # Flags
//
// A flag is 64 bits, epoch<<32 | operation, and has exactly one writer. A rank
// waits until a flag has reached an operation of its own epoch; operation numbers
// are compared by their difference, so they may wrap. A flag of another epoch
// never satisfies a wait.
//
// A rank enters operation n by posting: it writes its descriptor (what it is
// about to do) and then its post flag. Peers compare descriptors, so ranks that
// disagree get a MismatchError that names the odd one, and never hang.
//
// # Rendezvous and buffers
//
// Every operation, at every rank, completes only after it has heard, directly or
// through others, from all ranks. So a rank that has completed n+1 knows that all
// ranks have entered n+1, hence completed n, and it may overwrite what belongs to
// n. Two buffers, used by the parity of the operation number, are therefore
// enough: a fast rank cannot touch what a slow one still reads.
//
// # Waits
//
// A wait polls, then lets other threads run, then sleeps on a futex, as Polling
// says. It ends with the flag, with the abort word (shm.ErrAborted) or at the
// deadline (*TimeoutError, which names the ranks that did not come and aborts the
// epoch for everybody else). There is no other end and no unbounded wait.
//
// # The window
//
// While the ranks of a group load together they reduce nothing, and a Window lends the
// partials' buffers to the loaders. It is the one thing here whose waits are no
// errors: ranks that do not come together each load by themselves.
//
// A SharedMemory belongs to the thread that runs its rank's operations; Abort and
// Err may be called from any thread.
package transport
