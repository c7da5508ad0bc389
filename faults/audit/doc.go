// Package audit judges a run with faults: it is told what was seen, and says
// whether the runtime's invariants held.
//
//	identical   completed output is what it is without faults
//	ends-once   every request ends exactly once, complete or with a typed error
//	no-loss     no token is lost, delivered twice, or delivered after the end
//	explained   no rank is lost, and no operation differs, without a fault
//	epochs      no answer of an old epoch is taken
//	bounds      losses are noticed, and the group serves again, in time
//	at-rest     nothing is left when the run is over
//	budget      the group does not form again more often than it may
//
// The package has no clock and starts nothing. An Audit may be told from any
// goroutine. Each check has a test in which it finds a violation.
package audit
