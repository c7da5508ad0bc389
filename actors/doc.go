// Package actors is the process and control layer of Octet: the group of rank
// processes that serve one model together, its life, and its rounds.
//
// # Tree
//
//	supervisor process                        rank process (xN)
//	 group      state machine, all for one     rank    life of the engine thread
//	  └ proxy/N  one rank in one epoch          health  the process's own account
//
// The unit of failure is the group. A rank that is lost, for whatever reason,
// aborts the collective on all others, and the group forms again under the next
// epoch, as long as its restart budget lasts. Only the lost rank's process is ended
// and started anew: the others leave the epoch, keep their process and their weights
// and rejoin (Successor). One that cannot leave, or does not in time, is started anew
// as well. An actor
// that restarted a child inside its process could not revive a dead process or a
// poisoned device context, so protoactor's own supervision stops, never restarts.
// The life of the communicator is the engine's: it maps it in Load, and what all
// ranks must have decided alike (the collective plan among it) comes back as one
// hash that the group compares before it serves.
//
// # Planes
//
// Rounds go over a board (package board), from the caller of Group.Do to the
// engine threads and back; no mailbox is on that path. Everything else is a
// message: locally by protoactor, across processes in rings of shared memory
// (package link) behind an address resolver. The actor.Process of a foreign PID
// is stateless and finds the link anew at each send, because a PID caches its
// Process for ever while links come and go with epochs.
//
// # Epochs
//
// Each epoch has memory of its own: board, links, the caller's segments. A
// process that should be gone can write only what nobody reads any more. Do
// refuses rounds of another epoch with ErrStaleEpoch. A rank that outlives an epoch
// unmaps all of its memory, says so, and gets the next epoch's files over a socket
// that it has from birth, the succession; only then is the old memory released.
//
// # Who owns what
//
// The group owns the formation of the current epoch; the formation owns board,
// links and segments; an incarnation owns a rank's process, over all its epochs,
// and the supervisor's end of its succession; a proxy stands for a rank in one epoch.
// Whatever happens, processes that do not leave are killed and reaped, in bounded
// time, and only then is the memory unmapped. On the rank's side RunRank owns the
// engine thread, and Inherited the memory.
package actors
