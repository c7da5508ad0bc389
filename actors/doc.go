// Package actors is the process and control layer of Octet: the group of rank
// processes that serve one model together, its life, and its rounds.
//
// # Tree
//
//	supervisor process                        rank process (xN)
//	 group      state machine, all for one     rank    life of the engine thread
//	  └ proxy/N  one rank's process and link    health  the process's own account
//
// The unit of failure is the group. A rank that is lost, for whatever reason,
// aborts the collective on all others, all processes are ended, and the group
// forms again under the next epoch, as long as its restart budget lasts. An actor
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
// refuses rounds of another epoch with ErrStaleEpoch.
//
// # Who owns what
//
// The group owns the formation of the current epoch; the formation owns board,
// links and segments; a proxy owns its process. Whatever happens, the proxies
// kill and reap, in bounded time, and only then is the memory unmapped. On the
// rank's side RunRank owns the engine thread, and Inherited the memory.
package actors
