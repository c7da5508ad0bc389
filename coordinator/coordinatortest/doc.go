// Package coordinatortest is a group of ranks for tests: a toy language model in
// the process of the test that keeps to the contract of rounds. It drafts,
// verifies and samples with package speculation as ranks do, and fails a round in
// which the coordinator breaks the contract.
package coordinatortest
