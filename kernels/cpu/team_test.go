package cpu

import (
	"sync/atomic"
	"testing"
	"time"
)

// counting is a job that counts how often each unit ran.
type counting struct{ ran []atomic.Int32 }

func (c *counting) unit(_ *worker, i int) { c.ran[i].Add(1) }

func TestTeamRunsEveryUnitOnce(t *testing.T) {
	r := genericRoutines()
	for _, threads := range []int{1, 2, 5} {
		team := newTeam(threads, &r)
		for round := range 2000 {
			if round%500 == 499 {
				time.Sleep(2 * time.Millisecond) // long enough for all to park
			}
			c := &counting{ran: make([]atomic.Int32, round%7)}
			team.run(c, len(c.ran))
			for i := range c.ran {
				if n := c.ran[i].Load(); n != 1 {
					t.Fatalf("%d threads, round %d: unit %d of %d ran %d times", threads, round, i, len(c.ran), n)
				}
			}
		}
		if err := team.close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReadBandwidthIsPlausible(t *testing.T) {
	for _, threads := range []int{1, 2} {
		b := newBackend(t, Config{Threads: threads})
		if _, err := b.NewReadProbe(0); err == nil {
			t.Error("no error for no memory")
		}
		probe, err := b.NewReadProbe(8 << 20)
		if err != nil {
			t.Fatal(err)
		}
		got := probe.Measure()
		if err := probe.Close(); err != nil {
			t.Fatal(err)
		}
		if got < 1e7 || got > 1e13 {
			t.Errorf("%d threads: %g bytes/s", threads, got)
		}
	}
}

func TestISANamesRoundTrip(t *testing.T) {
	for isa := Auto; isa <= AVX512; isa++ {
		if got, err := ParseISA(isa.String()); err != nil || got != isa {
			t.Errorf("%v became %v, %v", isa, got, err)
		}
	}
	if _, err := ParseISA("sse2"); err == nil {
		t.Error("no error for an unknown instruction set")
	}
}
