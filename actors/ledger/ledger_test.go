package ledger

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/octet-run/octet/faults"
	"github.com/octet-run/octet/internal/shm"
)

func newBook(t *testing.T, script string) *Book {
	t.Helper()
	b, err := NewBook(8, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	arm(t, b, script)
	return b
}

func arm(t *testing.T, b *Book, script string) {
	t.Helper()
	parsed, err := faults.Parse(script, 8)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Arm(parsed.Faults); err != nil {
		t.Fatal(err)
	}
}

// epoch begins an epoch and returns the injector of each rank.
func epoch(t *testing.T, b *Book) []*faults.Injector {
	t.Helper()
	segment, err := b.Segment()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = segment.Close() })
	return injectors(t, segment)
}

func injectors(t *testing.T, segment *shm.Segment) []*faults.Injector {
	t.Helper()
	all := make([]*faults.Injector, 8)
	for r := range all {
		page, err := Open(segment)
		if err != nil {
			t.Fatal(err)
		}
		all[r] = faults.NewSharedInjector(page, r)
	}
	return all
}

func TestAFaultForAnyRankStrikesOneOfThem(t *testing.T) {
	b := newBook(t, "fail at rank.step")
	var struck atomic.Int32
	var all sync.WaitGroup
	for _, in := range epoch(t, b) {
		all.Go(func() {
			for round := range uint64(100) {
				if in.Point(faults.RankStep, faults.Where{Round: round + 1}) != nil {
					struck.Add(1)
				}
			}
		})
	}
	all.Wait()
	if n := struck.Load(); n != 1 {
		t.Errorf("struck %d times, want once", n)
	}
	if n := len(b.Strikes()); n != 1 {
		t.Errorf("the book knows %d strikes, want 1", n)
	}
}

func TestWhatStruckDoesNotStrikeAgainInTheNextEpoch(t *testing.T) {
	b := newBook(t, "at round 3 fail rank=2\nat round 5 fail rank=2")
	step := func(in *faults.Injector, round uint64) bool {
		return in.Point(faults.RankStep, faults.Where{Round: round}) != nil
	}
	in := epoch(t, b)[2]
	for round := uint64(1); round <= 3; round++ {
		if got := step(in, round); got != (round == 3) {
			t.Fatalf("round %d of the first epoch: struck %v", round, got)
		}
		if round < 3 {
			b.RoundDone()
		}
	}
	// Two rounds were done and one was lost: the next epoch's round 2 is the run's
	// round 5.
	in = epoch(t, b)[2]
	for round := uint64(1); round <= 4; round++ {
		if got := step(in, round); got != (round == 2) {
			t.Fatalf("round %d of the second epoch: struck %v", round, got)
		}
	}
	strikes := b.Strikes()
	if len(strikes) != 2 || strikes[0].Round != 3 || strikes[1].Round != 5 || strikes[1].Rank != 2 {
		t.Errorf("strikes are %+v", strikes)
	}
}

func TestAFaultThatRepeatsDoesNotMeetTheRoundItBrokeAgain(t *testing.T) {
	b := newBook(t, "at round 2 fail at rank.step rank=0 every=100")
	for n := range 3 {
		in := epoch(t, b)[0]
		for round := uint64(1); round <= 4; round++ {
			if in.Point(faults.RankStep, faults.Where{Round: round}) == nil {
				b.RoundDone()
				continue
			}
			if n > 0 {
				t.Fatalf("struck in round %d of epoch %d", round, n+1)
			}
			break
		}
	}
}

func TestAFaultThatRepeatsStrikesOnceARoundWhicheverRankGetsThere(t *testing.T) {
	b := newBook(t, "at round 2 delay at collective.reduce for=1ms every=3")
	ranks := epoch(t, b)
	var struck []uint64
	for round := uint64(1); round <= 8; round++ {
		for range 2 {
			for _, in := range ranks {
				if in.Point(faults.CollectiveReduce, faults.Where{Round: round}) != nil {
					struck = append(struck, round)
				}
			}
		}
	}
	if !slices.Equal(struck, []uint64{2, 5, 8}) {
		t.Errorf("struck in rounds %v, want 2, 5 and 8", struck)
	}
}

func TestFaultsAreArmedAndClearedWhileRanksRun(t *testing.T) {
	b := newBook(t, "")
	in := epoch(t, b)[0]
	pass := func() bool { return in.Point(faults.RankAccept, faults.Where{}) != nil }
	if pass() {
		t.Fatal("struck with nothing armed")
	}
	arm(t, b, "delay at rank.accept rank=0 for=1ms every=1")
	for range 2 {
		if !pass() {
			t.Fatal("a fault that repeats did not strike twice")
		}
	}
	if list := b.List(); len(list) != 1 || !list[0].Fired || list[0].Strikes != 2 {
		t.Fatalf("the list is %+v", list)
	}
	if n, err := b.Clear(); n != 1 || err != nil {
		t.Fatalf("cleared %d: %v", n, err)
	}
	if pass() || len(b.List()) != 0 {
		t.Error("a cleared fault is still there")
	}
	if _, err := b.Clear("x"); err == nil {
		t.Error("an id that is none was cleared")
	}
}

func TestFaultsFromOutsideAreDueOnceAtTheirRound(t *testing.T) {
	b := newBook(t, "at round 2 kill rank=3\nat round 2 stop rank=any for=1ms every=3\nfail at rank.step")
	var at []uint64
	for range 9 {
		for range 3 { // asked more than once a round
			for _, s := range b.DueOutside() {
				if !s.Fault.Do.External() || s.Rank < 0 || s.Rank >= 8 {
					t.Fatalf("due: %+v", s)
				}
				at = append(at, s.Round)
			}
		}
		b.RoundDone()
	}
	want := []uint64{2, 2, 5, 8}
	if len(at) != len(want) {
		t.Fatalf("due in rounds %v, want %v", at, want)
	}
	for i := range want {
		if at[i] != want[i] {
			t.Fatalf("due in rounds %v, want %v", at, want)
		}
	}
}

func TestRoundsCanCountFromTheMiddleOfAnEpoch(t *testing.T) {
	b := newBook(t, "")
	in := epoch(t, b)[0]
	for range 10 {
		b.RoundDone()
	}
	b.Restart()
	arm(t, b, "at round 2 fail at rank.step rank=0\nat round 2 kill rank=0")
	if in.Point(faults.RankStep, faults.Where{Round: 11}) != nil || len(b.DueOutside()) != 0 {
		t.Fatal("struck in the first round")
	}
	b.RoundDone()
	if in.Point(faults.RankStep, faults.Where{Round: 12}) == nil || len(b.DueOutside()) != 1 {
		t.Fatal("did not strike in the second round")
	}
	if s := b.Strikes(); s[0].Round != 2 || s[1].Round != 2 {
		t.Errorf("strikes are %+v", s)
	}
}

func TestTheSupervisorsPointsAreInTheBookToo(t *testing.T) {
	b := newBook(t, "at round 2 fail at coordinator.round")
	in := b.Injector()
	for round := uint64(1); round <= 3; round++ {
		f := in.Point(faults.CoordinatorRound, faults.Where{Round: round})
		if (f != nil) != (round == 2) {
			t.Fatalf("round %d: %v", round, f)
		}
	}
	if s := b.Strikes(); len(s) != 1 || s[0].Rank != faults.Supervisor {
		t.Errorf("strikes are %+v", s)
	}
}

func TestASegmentThatIsNoPageIsRefused(t *testing.T) {
	for name, size := range map[string]int{"size": 4096, "magic": pageBytes} {
		segment, err := shm.Create("octet-test", size)
		if err != nil {
			t.Fatal(err)
		}
		defer segment.Close()
		if _, err := Open(segment); err == nil {
			t.Errorf("wrong %s: taken as a page", name)
		}
	}
}
