// Package round defines what the coordinator tells the ranks in one round and
// what the ranks answer: plain structs and their binary form, the one
// definition that both sides use.
//
// Everything on which ranks could disagree is in the Round: which sequences
// run, their tokens, what was committed, how to draft. A rank is a
// deterministic function of its weights and the Rounds it has seen.
package round
