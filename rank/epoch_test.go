package rank

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/collectives/transport"
	"github.com/octet-run/octet/internal/shm"
)

// rejoin brings all engines into another epoch, and takes the memory of the last one
// from under whatever still refers to it.
func (g *group) rejoin(epoch uint32) {
	g.t.Helper()
	slabs, err := transport.Create(transport.Config{Ranks: len(g.engines), MaxRows: testRows, MaxWidth: 512, Epoch: epoch})
	if err != nil {
		g.t.Fatal(err)
	}
	for rank, e := range g.engines {
		if err := e.Leave(); err != nil {
			g.t.Fatal(err)
		}
		if err := e.AtRest(); err != nil {
			g.t.Error(err)
		}
		if err := e.Rejoin(g.at(slabs, rank)); err != nil {
			g.t.Fatal(err)
		}
	}
	if err := g.slabs.Close(); err != nil {
		g.t.Fatal(err)
	}
	g.slabs = slabs
}

// abort has all ranks fail in the middle of a round.
func (g *group) abort(entries ...round.Entry) {
	g.t.Helper()
	g.slabs.Abort(-1, shm.Died)
	for _, work := range g.work {
		work <- &round.Round{Epoch: 1, Seq: g.seq + 1, Entries: entries}
	}
	for range g.work {
		if a := <-g.answers; !errors.Is(a.err, shm.ErrAborted) {
			g.t.Fatalf("rank %d in an aborted epoch: %v", a.rank, a.err)
		}
	}
}

func TestAnEngineThatRejoinsIsAsAFreshOne(t *testing.T) {
	c := recordedCases(t)[0]
	for name, setting := range map[string]int{"plain": 0, "drafting": 2} {
		t.Run(name, func(t *testing.T) {
			config := pairConfig(t)
			config.DraftOnAll = true
			g := newGroup(t, config, 3)
			draft := settings[setting].draft
			for epoch := range uint32(3) {
				whole := &request{slot: 1, id: 1, prompt: c.PromptIDs, sampling: round.Sampling{Logprobs: -1}, draft: draft}
				g.run(len(c.Greedy), whole)
				if !slices.Equal(whole.tokens[:len(c.Greedy)], c.Greedy) {
					t.Fatalf("epoch %d: tokens differ from the record", epoch+1)
				}
				if lengths := c.Accept[settings[setting].name].AcceptLengths; draft.Nodes > 0 && !slices.Equal(whole.lengths, lengths) {
					t.Fatalf("epoch %d: accepted %v, recorded %v", epoch+1, whole.lengths, lengths)
				}
				// One that is in mid-sentence, its last tree not yet settled, when the epoch ends.
				open := &request{slot: 2, id: 2, prompt: c.PromptIDs[:30], sampling: round.Sampling{Logprobs: -1}, draft: draft}
				for range 4 {
					if err := open.take(g.do(open.entry()).Outcomes[0]); err != nil {
						t.Fatal(err)
					}
				}
				g.abort(open.entry())
				g.rejoin(epoch + 2)
			}
		})
	}
}

// Negative control: engines that do not leave are not as fresh.
func TestAnEngineThatDidNotLeaveIsNotAtRest(t *testing.T) {
	c := recordedCases(t)[0]
	g := newGroup(t, pairConfig(t), 1)
	open := &request{slot: 2, id: 2, prompt: c.PromptIDs[:30], sampling: round.Sampling{Logprobs: -1}}
	g.do(open.entry())
	if g.engines[0].AtRest() == nil {
		t.Error("an engine in mid-sentence is at rest")
	}
}

// Ranks that load together try their paths then, those that rejoin in the first round.
func TestEveryEpochProvesItsPathsOnce(t *testing.T) {
	collectives := make([]int, 2)
	g := newGroupAt(t, pairConfig(t), len(collectives), func(slabs *transport.Group, rank int) Place {
		at := place(slabs, rank)
		at.Wait = func() { collectives[rank]++ }
		return at
	})
	expect := func(when string, want int) {
		t.Helper()
		if !slices.Equal(collectives, []int{want, want}) {
			t.Errorf("%s the ranks have run %v collectives, want %d each", when, collectives, want)
		}
	}
	expect("loaded,", 1)
	g.do() // a round of nothing
	expect("after a round", 1)
	g.rejoin(2)
	g.do()
	expect("after the first round of a later epoch", 2)
	g.do()
	expect("after the second", 2)
}

// A collective that fails is told once, at once: the pass goes on to its end.
func TestABrokenCollectiveIsToldBeforeThePassEnds(t *testing.T) {
	var g *group
	told := make([]int, 2)
	g = newGroupAt(t, pairConfig(t), len(told), func(slabs *transport.Group, rank int) Place {
		at := place(slabs, rank)
		at.Broken = func() {
			told[rank]++
			if g.engines[rank].reducer.failure() == nil {
				t.Errorf("rank %d: told after the pass", rank)
			}
		}
		return at
	})
	q := &request{slot: 1, id: 1, prompt: recordedCases(t)[0].PromptIDs[:8], sampling: round.Sampling{Logprobs: -1}}
	if err := q.take(g.do(q.entry()).Outcomes[0]); err != nil {
		t.Fatal(err)
	}
	if told[0]+told[1] != 0 {
		t.Fatalf("told %v times of a round in which nothing broke", told)
	}
	g.abort(q.entry())
	if told[0] != 1 || told[1] != 1 {
		t.Errorf("told %v times that the collectives broke, want once each", told)
	}
}

// A rank that takes a lost one's place loads alone: under a limit, too, it waits for
// nobody. In a first epoch it does.
func TestALoadLimitHoldsUpNoRankThatLoadsAlone(t *testing.T) {
	for _, later := range []bool{true, false} {
		c := pairConfig(t)
		c.Draft, c.LoadLimit, c.CollectiveTimeout = "", 64<<10, 200*time.Millisecond
		slabs, err := transport.Create(transport.Config{Ranks: 2, MaxRows: c.MaxRows, MaxWidth: 512, Epoch: 1})
		if err != nil {
			t.Fatal(err)
		}
		at := place(slabs, 1)
		at.Later = later
		e, err := Load(c, at, func(int64, int64) {})
		if loaded := err == nil; loaded != later {
			t.Errorf("later epoch %v: loaded alone with %v", later, err)
		}
		if e != nil {
			err = e.Close()
		}
		if closed := slabs.Close(); later && err != nil || closed != nil {
			t.Error(err, closed)
		}
	}
}
