package testgroup

import (
	"runtime"
	"testing"
	"time"
)

// Goroutines runs body for every rank, each on an OS thread of its own, and
// returns their errors by rank. A rank that waits on shared memory keeps its
// processor, so there are made to be more processors than ranks meanwhile. Ranks that have not ended after limit fail the test.
func Goroutines(t testing.TB, ranks int, limit time.Duration, body func(rank int) error) []error {
	t.Helper()
	type end struct {
		rank int
		err  error
	}
	if before := runtime.GOMAXPROCS(0); before <= ranks {
		runtime.GOMAXPROCS(ranks + 1)
		defer runtime.GOMAXPROCS(before)
	}
	ends := make(chan end, ranks)
	for rank := range ranks {
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ends <- end{rank, body(rank)}
		}()
	}
	errs := make([]error, ranks)
	ended := make([]bool, ranks)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for range ranks {
		select {
		case e := <-ends:
			errs[e.rank], ended[e.rank] = e.err, true
		case <-timer.C:
			t.Fatalf("not all ranks ended within %v: ended %v", limit, ended)
		}
	}
	return errs
}
