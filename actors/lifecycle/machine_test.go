package lifecycle

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func kinds(effects []Effect) []EffectKind {
	out := []EffectKind{}
	for _, e := range effects {
		out = append(out, e.Kind)
	}
	return out
}

func expect(t *testing.T, l *Machine, got []Effect, phase Phase, want ...EffectKind) []Effect {
	t.Helper()
	if !slices.Equal(kinds(got), append([]EffectKind{}, want...)) || l.phase != phase {
		t.Fatalf("phase %v, effects %v; want %v, %v", l.phase, kinds(got), phase, want)
	}
	return got
}

func serving(t *testing.T, ranks int, restart Restart) *Machine {
	t.Helper()
	if err := restart.Validate(); err != nil {
		t.Fatal(err)
	}
	l := New(ranks, restart)
	expect(t, l, l.Start(), Forming, Form)
	for r := range ranks - 1 {
		expect(t, l, l.Ready(1, r, 7), Forming)
	}
	expect(t, l, l.Ready(1, ranks-1, 7), Serving, Serve)
	return l
}

func loss(epoch uint32, rank int) *RankError {
	return &RankError{Epoch: epoch, Rank: rank, Reason: "died"}
}

func TestAGroupServesWhenAllRanksAreReady(t *testing.T) { serving(t, 3, Restart{}) }

func TestALossBreaksTheGroupAndItFormsAgain(t *testing.T) {
	l, now := serving(t, 2, Restart{}), time.Unix(0, 0)
	effects := expect(t, l, l.Lost(loss(1, 1)), Broken, Abort)
	if !errors.Is(effects[0].Err, ErrGroupBroken) {
		t.Fatalf("cause %v is not ErrGroupBroken", effects[0].Err)
	}
	expect(t, l, l.Lost(loss(1, 0)), Broken) // the others follow
	if l.cause.Rank != 1 {
		t.Fatalf("cause is rank %d, want the first", l.cause.Rank)
	}
	expect(t, l, l.Gone(1, 1, now), Broken)
	expect(t, l, l.Gone(1, 0, now), Waiting, Release, Pause)
	expect(t, l, l.Resumed(1), Forming, Form)
	if l.epoch != 2 {
		t.Fatalf("epoch is %d, want 2", l.epoch)
	}
}

func TestEventsOfAnotherEpochChangeNothing(t *testing.T) {
	l, now := serving(t, 2, Restart{}), time.Unix(0, 0)
	expect(t, l, l.Lost(loss(1, 0)), Broken, Abort)
	l.Gone(1, 0, now)
	l.Gone(1, 1, now)
	expect(t, l, l.Resumed(1), Forming, Form)
	expect(t, l, l.Lost(loss(1, 0)), Forming)
	expect(t, l, l.Gone(1, 0, now), Forming)
	expect(t, l, l.Ready(1, 0, 7), Forming)
	expect(t, l, l.Resumed(1), Forming)
}

func TestALossWhileFirstLoadingIsFinal(t *testing.T) {
	l, now := New(2, Restart{Max: 5, Window: time.Minute}), time.Unix(0, 0)
	l.Start()
	expect(t, l, l.Lost(loss(1, 1)), Broken, Abort)
	l.Gone(1, 0, now)
	effects := expect(t, l, l.Gone(1, 1, now), Closed, Release, Finish)
	var lost *RankError
	if !errors.As(effects[1].Err, &lost) || lost.Rank != 1 {
		t.Fatalf("final error is %v, want rank 1's", effects[1].Err)
	}
}

func TestDifferentPlansDoNotServe(t *testing.T) {
	l := New(3, Restart{})
	l.Start()
	l.Ready(1, 0, 7)
	l.Ready(1, 1, 7)
	expect(t, l, l.Ready(1, 2, 8), Broken, Abort)
	if l.cause.Rank != 2 {
		t.Fatalf("cause is %v, want rank 2", l.cause)
	}
}

func TestTheRestartBudgetEndsTheGroup(t *testing.T) {
	l, now := serving(t, 1, Restart{Max: 3, Window: time.Minute, Pause: time.Second, MaxPause: 90 * time.Second}), time.Unix(0, 0)
	for i, want := range []time.Duration{0, time.Second, 2 * time.Second} {
		l.Lost(loss(l.epoch, 0))
		effects := expect(t, l, l.Gone(l.epoch, 0, now.Add(time.Duration(i)*time.Second)), Waiting, Release, Pause)
		if effects[1].Pause != want {
			t.Fatalf("restart %d waits %v, want %v", i, effects[1].Pause, want)
		}
		l.Resumed(l.epoch)
		expect(t, l, l.Ready(l.epoch, 0, 7), Serving, Serve)
	}
	l.Lost(loss(l.epoch, 0))
	effects := expect(t, l, l.Gone(l.epoch, 0, now.Add(30*time.Second)), Closed, Release, Finish)
	if !errors.Is(effects[1].Err, ErrGroupBroken) {
		t.Fatalf("final error %v is not ErrGroupBroken", effects[1].Err)
	}
}

func TestTheRestartBudgetRefills(t *testing.T) {
	b := budget{Restart: Restart{Max: 1, Window: time.Minute, Pause: time.Second, MaxPause: time.Second}}
	if _, ok := b.spend(time.Unix(0, 0)); !ok {
		t.Fatal("the first was refused")
	}
	if _, ok := b.spend(time.Unix(59, 0)); ok {
		t.Fatal("a second within the window was allowed")
	}
	if wait, ok := b.spend(time.Unix(60, 0)); !ok || wait != 0 {
		t.Fatalf("after the window: %v, %v", wait, ok)
	}
}

func TestStopWorksFromEveryPhase(t *testing.T) {
	now := time.Unix(0, 0)
	for phase, prepare := range map[Phase]func(l *Machine){
		Serving: func(*Machine) {},
		Broken:  func(l *Machine) { l.Lost(loss(1, 0)) },
		Waiting: func(l *Machine) { l.Lost(loss(1, 0)); l.Gone(1, 0, now) },
		Closed:  func(l *Machine) { l.Stop(); l.Gone(1, 0, now) },
	} {
		l := serving(t, 1, Restart{})
		prepare(l)
		if l.phase != phase {
			t.Fatalf("phase is %v, want %v", l.phase, phase)
		}
		l.Stop()
		l.Gone(1, 0, now)
		if l.phase != Closed {
			t.Errorf("stopped from %v: phase %v, want closed", phase, l.phase)
		}
	}
}

// Whatever comes in whatever order: an epoch's memory is released once and only
// when all its ranks are gone, a new one is formed only after that, and nothing
// happens after the end.
func TestNoOrderOfEventsLeaksOrOverlapsEpochs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const ranks = 3
		restart := Restart{Max: rapid.IntRange(1, 4).Draw(t, "max")}
		if err := restart.Validate(); err != nil {
			t.Fatal(err)
		}
		l, held, finished := New(ranks, restart), uint32(0), false
		gone := map[uint32]map[int]bool{}
		apply := func(effects []Effect) {
			for _, e := range effects {
				if finished {
					t.Fatalf("effect %v after the end", e.Kind)
				}
				switch e.Kind {
				case Form:
					if held != 0 {
						t.Fatalf("epoch %d forms while %d holds memory", l.epoch, held)
					}
					held = l.epoch
				case Release:
					if held != l.epoch || len(gone[held]) != ranks {
						t.Fatalf("epoch %d released with %d ranks gone, %d held", l.epoch, len(gone[held]), held)
					}
					held = 0
				case Finish:
					if held != 0 {
						t.Fatalf("finished while epoch %d holds memory", held)
					}
					finished = true
				}
			}
		}
		apply(l.Start())
		for range rapid.IntRange(0, 80).Draw(t, "events") {
			epoch := max(1, l.epoch-uint32(rapid.IntRange(0, 1).Draw(t, "age")))
			rank := rapid.IntRange(0, ranks-1).Draw(t, "rank")
			switch rapid.IntRange(0, 9).Draw(t, "event") {
			case 0, 1, 2, 3:
				apply(l.Ready(epoch, rank, 7))
			case 4:
				apply(l.Lost(loss(epoch, rank)))
			case 5, 6, 7:
				if rapid.Bool().Draw(t, "explained") {
					apply(l.Lost(loss(epoch, rank)))
				}
				if gone[epoch] == nil {
					gone[epoch] = map[int]bool{}
				}
				gone[epoch][rank] = true
				apply(l.Gone(epoch, rank, time.Unix(0, 0)))
			case 8:
				apply(l.Resumed(epoch))
			case 9:
				if rapid.IntRange(0, 5).Draw(t, "really") == 0 {
					apply(l.Stop())
				}
			}
		}
	})
}
