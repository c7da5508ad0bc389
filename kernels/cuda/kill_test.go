//go:build cuda

package cuda

import (
	"fmt"
	"testing"
	"time"
)

// Words between the killing test and its ranks.
const (
	epochWord = wordsAt     // written by the parent: the epoch to run
	readyWord = wordsAt + 4 // counts ranks that run collectives in the epoch
	leftWord  = wordsAt + 8 // written by the survivor: epochs it has left
)

// kills is how often a rank is killed.
func kills() int { return fromEnvironment("OCTET_CUDA_KILLS", 50) }

// killedJob runs collectives until the group aborts; the survivor then closes
// its exchange, proves its context, and joins the next epoch.
func killedJob(m *member) error {
	b, err := newBuffers(m.device, maxBytes)
	if err != nil {
		return err
	}
	const count = 64 * benchCols
	want := randomBF16(count, 5, 5)
	if err := m.device.Write(b.residual, bytesOf(want)); err != nil {
		return err
	}
	for {
		m.word(readyWord).Add(1)
		for !Aborted(m.exchange.config.Control) {
			for range 200 {
				if err := m.exchange.AllReduce(OneShot, Grid{Blocks: 56, Threads: 512}, b.out, b.in, count); err != nil {
					return err
				}
			}
			if err := m.device.Sync(); err != nil {
				return err
			}
		}
		if err := m.exchange.Close(); err != nil {
			return fmt.Errorf("close after the kill: %w", err)
		}
		got := make([]uint16, count)
		if err := m.device.Read(bytesOf(got), b.residual); err != nil || got[7] != want[7] || got[count-1] != want[count-1] {
			return fmt.Errorf("memory after the kill: %v", err)
		}
		epoch := m.word(epochWord).Load()
		m.word(leftWord).Add(1)
		for m.word(epochWord).Load() == epoch {
			time.Sleep(100 * time.Microsecond)
		}
		if m.word(epochWord).Load() == uint32(kills()) {
			return m.rejoin()
		}
		if err := m.rejoin(); err != nil {
			return err
		}
	}
}

// rejoin meets the replacement of the dead rank, whose barriers begin at zero.
func (m *member) rejoin() error {
	m.barriers = 0
	return m.join(30*time.Second, 0)
}

func TestASurvivorOutlivesItsKilledPeer(t *testing.T) {
	ranks := deviceRanks()
	needDevices(t, ranks)
	g := startGroup(t, "killed", ranks, ranks, false)
	survivors := uint32(ranks - 1)
	var slowest time.Duration
	for kill := range kills() {
		g.waitFor(t, "all ranks to run", func() bool { return g.segment.Word(readyWord).Load() == survivors+1 })
		time.Sleep(time.Duration(1+kill%7) * 3 * time.Millisecond)
		g.kill(1)
		aborted := time.Now()
		Abort(g.control())
		g.waitFor(t, "the survivors to leave", func() bool { return g.segment.Word(leftWord).Load() == uint32(kill+1)*survivors })
		slowest = max(slowest, time.Since(aborted))
		clear(g.segment.Bytes()[controlAt:hostAt][:wordsAt]) // control memory and barriers of the next epoch
		clear(g.segment.Bytes()[handlesAt:hostAt])
		g.segment.Word(readyWord).Store(0)
		g.start(t, 1)
		g.segment.Word(epochWord).Store(uint32(kill + 1))
	}
	g.waitFor(t, "the last epoch", func() bool { return g.segment.Word(readyWord).Load() > 0 })
	Abort(g.control())
	if err := <-g.ended[0]; err != nil {
		t.Errorf("survivor: %v", err)
	}
	fmt.Printf("%d kills of one of %d ranks in mid-collective: the others were out of their kernels and mappings within %v each time\n",
		kills(), ranks, slowest.Round(time.Millisecond))
}

// waitFor polls until done, or until the survivor has ended.
func (g *group) waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(50 * time.Microsecond) {
		select {
		case err := <-g.ended[0]:
			t.Fatalf("waiting for %s: the survivor ended: %v", what, err)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited 30 s for %s", what)
		}
	}
}
