package rank

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/collectives/transport"
)

const (
	fixtures   = "../testdata/fixtures"
	chunkRows  = 48 // smaller than the prompts, so that they come in several chunks
	testSlots  = 8
	testRows   = 512
	testBlocks = 200
)

// group is N engines on threads of the test process, driven round by round.
type group struct {
	t       testing.TB
	slabs   *transport.Group
	at      func(slabs *transport.Group, rank int) Place
	engines []*Engine
	work    []chan *round.Round
	answers chan answer
	seq     uint64
}

type answer struct {
	rank   int
	result *round.Result
	hash   uint64
	err    error
}

func pairConfig(t testing.TB) Config {
	t.Helper()
	return Config{
		Model: filepath.Join(fixtures, "eagle3-llama-pair/target"), Draft: filepath.Join(fixtures, "eagle3-llama-pair/draft"),
		Threads: 1, Slots: testSlots, Blocks: testBlocks, Context: 2048, MaxRows: testRows,
	}
}

func newGroup(t testing.TB, c Config, ranks int) *group {
	t.Helper()
	return newGroupAt(t, c, ranks, place)
}

// newGroupAt is newGroup with ranks at places that the caller makes.
func newGroupAt(t testing.TB, c Config, ranks int, at func(*transport.Group, int) Place) *group {
	t.Helper()
	c.CollectiveTimeout = 2 * time.Minute // however busy the machine is
	// An engine that waits keeps its processor.
	before := runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), ranks+2))
	slabs, err := transport.Create(transport.Config{Ranks: ranks, MaxRows: c.MaxRows, MaxWidth: 512, Epoch: 1})
	if err != nil {
		t.Fatal(err)
	}
	g := &group{t: t, slabs: slabs, at: at, engines: make([]*Engine, ranks), answers: make(chan answer, ranks)}
	var loading, running sync.WaitGroup
	errs := make([]error, ranks)
	for rank := range ranks {
		work := make(chan *round.Round)
		g.work = append(g.work, work)
		loading.Add(1)
		running.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			e, err := Load(c, at(slabs, rank), func(int64, int64) {})
			g.engines[rank], errs[rank] = e, err
			loading.Done()
			if err != nil {
				return
			}
			for r := range work {
				result, err := e.Step(r)
				g.answers <- answer{rank, result, e.Hash(), err}
			}
		})
	}
	loading.Wait()
	t.Cleanup(func() {
		for _, work := range g.work {
			close(work)
		}
		running.Wait()
		for _, e := range g.engines {
			if e != nil {
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			}
		}
		_ = g.slabs.Close()
		runtime.GOMAXPROCS(before)
	})
	for rank, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", rank, err)
		}
	}
	return g
}

// place is a rank's in the epoch of slabs.
func place(slabs *transport.Group, rank int) Place {
	return Place{
		Rank: rank, Ranks: slabs.Ranks(), Slabs: slabs,
		Record: func(uint64) {}, Wait: func() {}, Waited: func(time.Duration) {}, Beat: func() {},
	}
}

// do runs one round on all ranks and holds their operation hashes against each other.
func (g *group) do(entries ...round.Entry) *round.Result {
	g.t.Helper()
	g.seq++
	for _, work := range g.work {
		work <- &round.Round{Epoch: 1, Seq: g.seq, Entries: entries}
	}
	var result *round.Result
	hashes := map[uint64]bool{}
	for range g.work {
		a := <-g.answers
		if a.err != nil {
			g.t.Fatalf("round %d, rank %d: %v", g.seq, a.rank, a.err)
		}
		hashes[a.hash] = true
		if a.rank == 0 {
			result = a.result
		}
	}
	if len(hashes) != 1 {
		g.t.Fatalf("round %d: the ranks ran different operations", g.seq)
	}
	return result
}

// request is one sequence as the coordinator would run it.
type request struct {
	slot     uint16
	id       uint64
	prompt   []int32
	sampling round.Sampling
	draft    round.Draft

	filled   int
	accepted []uint8
	tokens   []int32 // generated
	lengths  []int   // tokens of each decoding round
}

func (q *request) entry() round.Entry {
	e := round.Entry{Slot: q.slot, Request: q.id}
	if q.filled < len(q.prompt) {
		n := min(chunkRows, len(q.prompt)-q.filled)
		e.Kind, e.Committed, e.Tokens = round.Prefill, uint32(q.filled), q.prompt[q.filled:q.filled+n]
		e.Draft.By = q.draft.By
		if q.filled == 0 {
			e.Sampling = &q.sampling
		}
		q.filled += n
		e.Last = q.filled == len(q.prompt)
		return e
	}
	e.Kind, e.Draft, e.Accepted = round.Decode, q.draft, q.accepted
	e.Committed = uint32(len(q.prompt) + len(q.tokens) - 1)
	e.Tokens = q.tokens[len(q.tokens)-1:]
	return e
}

func (q *request) take(o round.Outcome) error {
	if o.Error != "" {
		return fmt.Errorf("request %d: %s", q.id, o.Error)
	}
	q.accepted = o.Path
	q.tokens = append(q.tokens, o.Tokens...)
	if len(o.Path) > 0 {
		q.lengths = append(q.lengths, len(o.Tokens))
	}
	return nil
}

// run takes the requests together to at least count tokens each, then releases them.
func (g *group) run(count int, requests ...*request) {
	g.t.Helper()
	for {
		var entries []round.Entry
		var live []*request
		for _, q := range requests {
			if len(q.tokens) < count {
				entries, live = append(entries, q.entry()), append(live, q)
			}
		}
		if len(entries) == 0 {
			break
		}
		result := g.do(entries...)
		for i, q := range live {
			if err := q.take(result.Outcomes[i]); err != nil {
				g.t.Fatal(err)
			}
		}
	}
	var entries []round.Entry
	for _, q := range requests {
		entries = append(entries, round.Entry{Kind: round.Release, Slot: q.slot, Request: q.id})
	}
	g.do(entries...)
	for _, e := range g.engines {
		if err := e.AtRest(); err != nil {
			g.t.Error(err)
		}
	}
}

func readFixture(t testing.TB, parts ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(append([]string{fixtures}, parts...)...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}
