package collectives

import (
	"testing"
	"time"

	"github.com/octet-run/octet/collectives/transport"
	"github.com/octet-run/octet/internal/testgroup"
)

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
