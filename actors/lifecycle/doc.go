// Package lifecycle is the life of a group of ranks as a pure state machine, all
// for one, and its restart budget.
//
// Events go in, effects come out: the machine has no clock, no goroutine and
// touches nothing, so package actors drives it with processes and the simulation
// with none. Its caller feeds it one event at a time and carries out every effect,
// in order, before the next.
//
// When a rank is lost all ranks leave the epoch, but only the one at fault loses its
// process: the others have dropped what they held of the epoch and wait for the
// next. All processes are ended if no epoch ever served, if no rank is to blame, or
// if epochs break again and again before they serve.
//
// Invariants: an event of another epoch changes nothing; an epoch begins only when
// nobody is left in the one before; a rank has one process at a time; the first loss
// of an epoch is its cause; no effect follows Finish.
package lifecycle
