package collectives

import (
	"errors"
	"testing"
	"time"

	"github.com/octet-run/octet/collectives/transport"
	"github.com/octet-run/octet/internal/testgroup"
)

func TestGoodPathsAreProven(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 8} {
		mustAll(t, prove(t, ranks, "two-shot", nil, func(c *Communicator) error {
			for range 2 { // at any operation, even or odd
				if err := reduceSizes(c, []int{100, 4096, 1}); err != nil {
					return err
				}
				if err := c.Prove(); err != nil {
					return err
				}
			}
			return reduceSizes(c, []int{4096})
		}))
	}
}

func TestAProofNamesTheBadPathAtItsEnd(t *testing.T) {
	for _, c := range []struct {
		name, algorithm string
		lies            place
		from            []int // which of the paths to each rank is named, -1 for none
	}{
		{"what is written for one", "two-shot", toRank2, []int{-1, -1, 0}},
		{"what is left for all", "two-shot", place{transport.Scratch, 0, 0}, []int{-1, 0, 0}},
		{"the common result", "central", place{transport.Common, 0, 0}, []int{1, 0, 0}}, // which rank 0 does not see, either
		{"an inbox that is not used", "central", toRank2, []int{-1, -1, -1}},
	} {
		for rank, err := range prove(t, len(c.from), c.algorithm, &c.lies, func(*Communicator) error { return nil }) {
			var path *PathError
			switch named := errors.As(err, &path); {
			case c.from[rank] >= 0 && (!named || path.From != c.from[rank] || path.To != rank):
				t.Errorf("%s: rank %d says %v, want the path from rank %d", c.name, rank, err, c.from[rank])
			case c.from[rank] < 0 && err != nil:
				t.Errorf("%s: rank %d: %v", c.name, rank, err)
			}
		}
	}
}

// prove proves the paths of a plan of one algorithm, where some memory may lie, and
// then does more at the ranks that found nothing.
func prove(t *testing.T, ranks int, algorithm string, lies *place, then func(*Communicator) error) []error {
	t.Helper()
	g := newGroup(t, transport.Config{Ranks: ranks, MaxRows: 1, MaxWidth: 4096})
	return runOn(t, g, func(rank int) error {
		m, err := g.Attach(rank, transport.Polling{Timeout: limit})
		if err != nil {
			return err
		}
		var link transport.Transport = m
		if lies != nil {
			link = lying(m, *lies)
		}
		c, err := New(link, Config{Plan: Plan{Version: PlanVersion, Shape: Shape{Ranks: ranks, Coherent: true}, Choices: []Choice{
			{Algorithm: algorithm}, {Algorithm: algorithm, Fused: true},
		}}})
		if err == nil {
			err = c.Prove()
		}
		if err != nil {
			return err
		}
		return then(c)
	})
}

// BenchmarkProve is what a proof adds to the start of eight ranks: on memory that
// nobody has touched, from when all of them have come to it.
func BenchmarkProve(b *testing.B) {
	var slowest time.Duration
	for range b.N {
		g := newGroup(b, transport.Config{Ranks: 8, MaxRows: 512, MaxWidth: 4096, HugePages: true})
		took := make([]time.Duration, 8)
		errs := testgroup.Goroutines(b, 8, limit, func(rank int) error {
			m, err := g.Attach(rank, transport.Polling{})
			if err != nil {
				return err
			}
			c, err := New(m, Config{})
			if err == nil {
				err = c.Barrier()
			}
			if err != nil {
				return err
			}
			begin := time.Now()
			err = c.Prove()
			took[rank] = time.Since(begin)
			return err
		})
		mustAll(b, errs)
		for _, t := range took {
			slowest += t / time.Duration(b.N) / 8
		}
	}
	b.ReportMetric(float64(slowest.Microseconds()), "us/rank")
}
