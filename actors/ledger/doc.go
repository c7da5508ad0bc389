// Package ledger is the memory in which the faults of a group are armed.
//
// A Page is shared by the supervisor and the ranks of one epoch; each process's
// faults.Injector reads it. A fault is claimed on the page before it strikes, so
// that one meant to strike once does so once over all ranks, and what struck is
// known even if the process dies of it. The Book is the supervisor's: it makes
// the page of each epoch out of the last one, carries out what acts on processes
// from outside, and keeps the list of all strikes.
//
// The Book owns its own mapping of a page, the group the segment that ranks
// inherit. All methods may be called from any goroutine, in any process.
package ledger
