package faults

import (
	"errors"
	"slices"
	"testing"
)

func parse(t testing.TB, text string) *Script {
	t.Helper()
	script, err := Parse(text, 8)
	if err != nil {
		t.Fatal(err)
	}
	return script
}

func TestAFaultStrikesOnceWhereAndWhenItSays(t *testing.T) {
	in := NewInjector(parse(t, "at round 5 fail at rank.step rank=2"), 2)
	for round := uint64(1); round <= 10; round++ {
		if in.Point(RankPost, Where{Round: round}) != nil {
			t.Fatalf("struck at another point in round %d", round)
		}
		f := in.Point(RankStep, Where{Round: round})
		if (f != nil) != (round == 5) {
			t.Fatalf("round %d: fault %v", round, f)
		}
		if f != nil && !errors.Is(Strike(f), ErrInjected) {
			t.Fatal("fail did not return ErrInjected")
		}
	}
	if n := len(in.Fired()); n != 1 {
		t.Fatalf("%d events, want 1", n)
	}
}

func TestAnotherRanksFaultIsNotArmed(t *testing.T) {
	in := NewInjector(parse(t, "fail rank=2\nkill rank=1"), 1)
	if got := in.Armed(); len(got) != 0 {
		t.Fatalf("armed %v", got)
	}
}

func TestEveryRepeats(t *testing.T) {
	in := NewInjector(parse(t, "at op 3 drop every=4"), 0)
	var struck []uint64
	for op := uint64(1); op <= 12; op++ {
		if in.Point(CollectiveArrive, Where{Op: op}) != nil {
			struck = append(struck, op)
		}
	}
	if len(struck) != 3 || struck[0] != 3 || struck[1] != 7 || struck[2] != 11 {
		t.Fatalf("struck at %v, want 3, 7, 11", struck)
	}
}

func TestRoundsThatRepeatStrikeOnceEachTime(t *testing.T) {
	in := NewInjector(parse(t, "at round 3 delay at collective.reduce for=1ms every=4\nat round 3 fail at link.send every=4"), 0)
	struck := map[Point][]uint64{}
	for round := uint64(1); round <= 12; round++ {
		for range 3 { // operations
			if in.Point(CollectiveReduce, Where{Round: round}) != nil {
				struck[CollectiveReduce] = append(struck[CollectiveReduce], round)
			}
		}
		if round%5 == 0 && in.Point(LinkSend, Where{}) != nil { // rarely passed
			struck[LinkSend] = append(struck[LinkSend], round)
		}
	}
	for p, want := range map[Point][]uint64{CollectiveReduce: {3, 7, 11}, LinkSend: {5, 10}} {
		if !slices.Equal(struck[p], want) {
			t.Errorf("struck at %s in rounds %v, want %v", p, struck[p], want)
		}
	}
}

func TestPointsThatCountNoRoundsStrikeInTheRoundUnderWay(t *testing.T) {
	in := NewInjector(parse(t, "at round 2 drop at collective.arrive"), 0)
	for round := uint64(1); round <= 3; round++ {
		in.Point(RankStep, Where{Round: round})
		f := in.Point(CollectiveArrive, Where{Op: 10 * round})
		if (f != nil) != (round == 2) {
			t.Fatalf("round %d: fault %v", round, f)
		}
	}
}

func BenchmarkPointWhenOff(b *testing.B) {
	var in *Injector
	for b.Loop() {
		if in.Point(CollectiveArrive, Where{}) != nil {
			b.Fatal("struck")
		}
	}
}
