package actors

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func kinds(effects []effect) []effectKind {
	out := []effectKind{}
	for _, e := range effects {
		out = append(out, e.kind)
	}
	return out
}

func expect(t *testing.T, l *lifecycle, got []effect, phase Phase, want ...effectKind) []effect {
	t.Helper()
	if !slices.Equal(kinds(got), append([]effectKind{}, want...)) || l.phase != phase {
		t.Fatalf("phase %v, effects %v; want %v, %v", l.phase, kinds(got), phase, want)
	}
	return got
}

func serving(t *testing.T, ranks int, restart Restart) *lifecycle {
	t.Helper()
	if err := restart.validate(); err != nil {
		t.Fatal(err)
	}
	l := newLifecycle(ranks, restart)
	expect(t, l, l.start(), Forming, form)
	for r := range ranks - 1 {
		expect(t, l, l.rankReady(1, r, 7), Forming)
	}
	expect(t, l, l.rankReady(1, ranks-1, 7), Serving, serve)
	return l
}

func loss(epoch uint32, rank int) *RankError {
	return &RankError{Epoch: epoch, Rank: rank, Reason: "died"}
}

func TestAGroupServesWhenAllRanksAreReady(t *testing.T) { serving(t, 3, Restart{}) }

func TestALossBreaksTheGroupAndItFormsAgain(t *testing.T) {
	l, now := serving(t, 2, Restart{}), time.Unix(0, 0)
	effects := expect(t, l, l.rankLost(loss(1, 1)), Broken, abort)
	if !errors.Is(effects[0].err, ErrGroupBroken) {
		t.Fatalf("cause %v is not ErrGroupBroken", effects[0].err)
	}
	expect(t, l, l.rankLost(loss(1, 0)), Broken) // the others follow
	if l.cause.Rank != 1 {
		t.Fatalf("cause is rank %d, want the first", l.cause.Rank)
	}
	expect(t, l, l.rankGone(1, 1, now), Broken)
	expect(t, l, l.rankGone(1, 0, now), Waiting, release, pause)
	expect(t, l, l.resumed(1), Forming, form)
	if l.epoch != 2 {
		t.Fatalf("epoch is %d, want 2", l.epoch)
	}
}

func TestEventsOfAnotherEpochChangeNothing(t *testing.T) {
	l, now := serving(t, 2, Restart{}), time.Unix(0, 0)
	expect(t, l, l.rankLost(loss(1, 0)), Broken, abort)
	l.rankGone(1, 0, now)
	l.rankGone(1, 1, now)
	expect(t, l, l.resumed(1), Forming, form)
	expect(t, l, l.rankLost(loss(1, 0)), Forming)
	expect(t, l, l.rankGone(1, 0, now), Forming)
	expect(t, l, l.rankReady(1, 0, 7), Forming)
	expect(t, l, l.resumed(1), Forming)
}

func TestALossWhileFirstLoadingIsFinal(t *testing.T) {
	l, now := newLifecycle(2, Restart{Max: 5, Window: time.Minute}), time.Unix(0, 0)
	l.start()
	expect(t, l, l.rankLost(loss(1, 1)), Broken, abort)
	l.rankGone(1, 0, now)
	effects := expect(t, l, l.rankGone(1, 1, now), Closed, release, finish)
	var lost *RankError
	if !errors.As(effects[1].err, &lost) || lost.Rank != 1 {
		t.Fatalf("final error is %v, want rank 1's", effects[1].err)
	}
}

func TestDifferentPlansDoNotServe(t *testing.T) {
	l := newLifecycle(3, Restart{})
	l.start()
	l.rankReady(1, 0, 7)
	l.rankReady(1, 1, 7)
	expect(t, l, l.rankReady(1, 2, 8), Broken, abort)
	if l.cause.Rank != 2 {
		t.Fatalf("cause is %v, want rank 2", l.cause)
	}
}

func TestTheRestartBudgetEndsTheGroup(t *testing.T) {
	l, now := serving(t, 1, Restart{Max: 3, Window: time.Minute, Pause: time.Second, MaxPause: 90 * time.Second}), time.Unix(0, 0)
	for i, want := range []time.Duration{0, time.Second, 2 * time.Second} {
		l.rankLost(loss(l.epoch, 0))
		effects := expect(t, l, l.rankGone(l.epoch, 0, now.Add(time.Duration(i)*time.Second)), Waiting, release, pause)
		if effects[1].pause != want {
			t.Fatalf("restart %d waits %v, want %v", i, effects[1].pause, want)
		}
		l.resumed(l.epoch)
		expect(t, l, l.rankReady(l.epoch, 0, 7), Serving, serve)
	}
	l.rankLost(loss(l.epoch, 0))
	effects := expect(t, l, l.rankGone(l.epoch, 0, now.Add(30*time.Second)), Closed, release, finish)
	if !errors.Is(effects[1].err, ErrGroupBroken) {
		t.Fatalf("final error %v is not ErrGroupBroken", effects[1].err)
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
	for phase, prepare := range map[Phase]func(l *lifecycle){
		Serving: func(*lifecycle) {},
		Broken:  func(l *lifecycle) { l.rankLost(loss(1, 0)) },
		Waiting: func(l *lifecycle) { l.rankLost(loss(1, 0)); l.rankGone(1, 0, now) },
		Closed:  func(l *lifecycle) { l.stop(); l.rankGone(1, 0, now) },
	} {
		l := serving(t, 1, Restart{})
		prepare(l)
		if l.phase != phase {
			t.Fatalf("phase is %v, want %v", l.phase, phase)
		}
		l.stop()
		l.rankGone(1, 0, now)
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
		if err := restart.validate(); err != nil {
			t.Fatal(err)
		}
		l, held, finished := newLifecycle(ranks, restart), uint32(0), false
		gone := map[uint32]map[int]bool{}
		apply := func(effects []effect) {
			for _, e := range effects {
				if finished {
					t.Fatalf("effect %v after the end", e.kind)
				}
				switch e.kind {
				case form:
					if held != 0 {
						t.Fatalf("epoch %d forms while %d holds memory", l.epoch, held)
					}
					held = l.epoch
				case release:
					if held != l.epoch || len(gone[held]) != ranks {
						t.Fatalf("epoch %d released with %d ranks gone, %d held", l.epoch, len(gone[held]), held)
					}
					held = 0
				case finish:
					if held != 0 {
						t.Fatalf("finished while epoch %d holds memory", held)
					}
					finished = true
				}
			}
		}
		apply(l.start())
		for range rapid.IntRange(0, 80).Draw(t, "events") {
			epoch := max(1, l.epoch-uint32(rapid.IntRange(0, 1).Draw(t, "age")))
			rank := rapid.IntRange(0, ranks-1).Draw(t, "rank")
			switch rapid.IntRange(0, 9).Draw(t, "event") {
			case 0, 1, 2, 3:
				apply(l.rankReady(epoch, rank, 7))
			case 4:
				apply(l.rankLost(loss(epoch, rank)))
			case 5, 6, 7:
				if rapid.Bool().Draw(t, "explained") {
					apply(l.rankLost(loss(epoch, rank)))
				}
				if gone[epoch] == nil {
					gone[epoch] = map[int]bool{}
				}
				gone[epoch][rank] = true
				apply(l.rankGone(epoch, rank, time.Unix(0, 0)))
			case 8:
				apply(l.resumed(epoch))
			case 9:
				if rapid.IntRange(0, 5).Draw(t, "really") == 0 {
					apply(l.stop())
				}
			}
		}
	})
}
