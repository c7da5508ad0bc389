// Package simulation runs the whole system in one process, on virtual time, under
// faults that are drawn from a seed, and checks the invariants.
//
// # What is real
//
// The coordinator with its loop, scheduler, token log, replay and resumption; the
// group's state machine and restart budget (actors/lifecycle); the round board with
// its frames and verdicts; the control links with their frames; the rank's engine
// with its slots, KV pages, trees, sampling and acceptance; the collectives with
// their programs, flags and rendezvous, over real slabs; the fault injectors that
// spoil bytes.
//
// What is simulated: processes, whose engine threads are coroutines of one
// goroutine (thread); devices and the model, which is a toy whose every output
// depends on every KV cell and every partial sum (toy); the wiring of package actors
// between mailboxes, proxies and processes (group, formation), which follows the
// original where it decides anything; the users (client) and the disk. A loss ends all
// processes here: that survivors keep theirs, and rejoin, is for the tests of actors
// and for octet fault run.
//
// # Time and order
//
// A run lives in a testing/synctest bubble. One goroutine owns the clock: it runs
// one event after another, by virtual time, with latencies drawn from the seed.
// The coordinator and the clients have goroutines of their own; the clock tells
// them one thing at a time and goes on when all of them wait again. So a seed and a
// script have one trace, and Report.Trace, a hash of all that happened, proves it.
//
// # Faults
//
// Script draws one to six faults in the language of package faults; their numbers
// count rounds over the whole run, and operations and passes as the points do. A
// seed also decides sizes, algorithm, users, deadlines and jumps of the wall clock.
// A flip of data in a slab is not drawn: nothing in the system would notice it.
//
// # Invariants
//
// What a user gets is always a beginning of what the model and the sampler alone
// would say, and all of it when the request is complete; every request ends once,
// early only for a reason that did occur; events join without gap or overlap across
// reconnections; no round is accepted that a fault has spoiled; no epoch serves,
// ends, or frees its memory because of another; a loss is noticed in time and the
// right rank is named; the restart budget is neither exceeded nor left unused; at
// rest no KV page is held, and after the end no process and no mapping is left.
//
// That these checks notice something is checked too: the tests compile the real
// packages with bugs planted in them and find each.
package simulation
