// Package lifecycle is the life of a group of ranks as a pure state machine, all
// for one, and its restart budget.
//
// Events go in, effects come out: the machine has no clock, no goroutine and
// touches nothing, so package actors drives it with processes and the simulation
// with none. Its caller feeds it one event at a time and carries out every effect,
// in order, before the next.
//
// Invariants: an event of another epoch changes nothing; an epoch begins only when
// nothing is left of the one before; the first loss of an epoch is its cause; no
// effect follows Finish.
package lifecycle
