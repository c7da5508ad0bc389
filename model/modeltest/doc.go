// Package modeltest runs models of several ranks in one test process: a plain
// exact reducer, recorded references, and the greedy loop that compares the two.
// Nothing but tests imports it.
package modeltest
