package simulation

import (
	"hash"

	"github.com/octet-run/octet/faults"
)

// Report is what came of a run.
type Report struct {
	Seed   uint64
	Faults []faults.Fault
	// Breaches are violations of the invariants, one sentence each.
	Breaches []string
	// Trace is a hash of everything that happened, with its time: equal seeds and
	// scripts have equal ones.
	Trace uint64
	// Struck counts the faults that did strike, Epochs and Rounds what was served.
	Struck, Epochs, Rounds int
	// Completed counts requests that ended with all their tokens, Refused those that
	// ended with a typed error.
	Completed, Refused int

	verbose func(line string)
	trace   hash.Hash64
}
