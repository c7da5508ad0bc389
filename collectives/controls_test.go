package collectives

import (
	"strings"
	"testing"
	"time"

	"github.com/octet-run/octet/collectives/transport"
)

// The negative controls: a transport with one of its guarantees removed, and a
// schedule that needs it. The check that passes on the real transport must fail.

// slowLink is late at chosen places.
type slowLink struct {
	*transport.SharedMemory
	beforePost  time.Duration // the producer is late
	beforeReads time.Duration // all have arrived, the reader is late
}

func (l slowLink) Post(op uint32, d transport.Descriptor) {
	time.Sleep(l.beforePost)
	l.SharedMemory.Post(op, d)
}

func (l slowLink) AwaitPost(from int, op uint32) error {
	err := l.SharedMemory.AwaitPost(from, op)
	time.Sleep(l.beforeReads)
	return err
}

// noRendezvous does not wait for its peers.
type noRendezvous struct{ slowLink }

func (noRendezvous) AwaitPost(int, uint32) error { return nil }

// earlyBarrier believes to be the last to arrive.
type earlyBarrier struct{ slowLink }

func (earlyBarrier) Arrive(uint32) bool { return true }

// oneBuffer has no second buffer.
type oneBuffer struct{ slowLink }

func (l oneBuffer) Memory(region transport.Region, owner, peer int, _ uint32) []float32 {
	return l.SharedMemory.Memory(region, owner, peer, 0)
}

func TestRacesThatTheProtocolPreventsAreCaughtWithoutIt(t *testing.T) {
	lateProducer := func(m *transport.SharedMemory, late time.Duration) slowLink {
		l := slowLink{SharedMemory: m}
		if m.Rank() == 1 {
			l.beforePost = late
		}
		return l
	}
	lateReader := func(m *transport.SharedMemory, late time.Duration) slowLink {
		l := slowLink{SharedMemory: m}
		if m.Rank() == 1 {
			l.beforeReads = late
		}
		return l
	}
	cases := []struct {
		name      string
		algorithm string
		slow      func(m *transport.SharedMemory, late time.Duration) slowLink
		broken    func(l slowLink) transport.Transport
		caught    string // a part of the error
	}{
		{"rendezvous removed", "one-shot", lateProducer, func(l slowLink) transport.Transport { return noRendezvous{l} }, "sum of operation"},
		{"barrier opened early", "central", lateProducer, func(l slowLink) transport.Transport {
			if l.Rank() == 0 {
				return earlyBarrier{l}
			}
			return l
		}, "has not entered"},
		{"one buffer instead of two", "one-shot", lateReader, func(l slowLink) transport.Transport { return oneBuffer{l} }, "sum of operation"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			late := 20 * time.Millisecond
			mustAll(t, raceRun(t, c.algorithm, limit, func(m *transport.SharedMemory) transport.Transport { return c.slow(m, late) }))
			// On a busy machine the others may be late too, and nothing shows.
			caught := false
			for ; !caught && late < 2*time.Second; late *= 2 {
				for _, err := range raceRun(t, c.algorithm, time.Second, func(m *transport.SharedMemory) transport.Transport {
					return c.broken(c.slow(m, late))
				}) {
					caught = caught || err != nil && strings.Contains(err.Error(), c.caught)
				}
			}
			if !caught {
				t.Error("the broken transport passed the check")
			}
		})
	}
}

func raceRun(t *testing.T, algorithm string, timeout time.Duration, wrap func(*transport.SharedMemory) transport.Transport) []error {
	t.Helper()
	const ranks = 3
	g := newGroup(t, transport.Config{Ranks: ranks, MaxRows: 1, MaxWidth: 1024})
	plan := planOf(algorithm, Shape{Ranks: ranks, Coherent: true})
	return runOn(t, g, func(rank int) error {
		m, err := g.Attach(rank, transport.Polling{Timeout: timeout})
		if err != nil {
			return err
		}
		c, err := New(wrap(m), Config{Plan: plan})
		if err != nil {
			return err
		}
		return reduceSizes(c, []int{1024, 1024, 1024, 1024})
	})
}
