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

// concerns checks an effect's ranks.
func concerns(t *testing.T, e Effect, ranks ...int) {
	t.Helper()
	if !slices.Equal(e.Ranks, ranks) {
		t.Fatalf("effect %v concerns ranks %v, want %v", e.Kind, e.Ranks, ranks)
	}
}

func loss(epoch uint32, rank int) *RankError {
	return &RankError{Epoch: epoch, Rank: rank, Reason: "died"}
}

func TestAGroupServesWhenAllRanksAreReady(t *testing.T) { serving(t, 3, Restart{}) }

func TestALossBreaksTheGroupAndItFormsAgain(t *testing.T) {
	l, now := serving(t, 2, Restart{}), time.Unix(0, 0)
	effects := expect(t, l, l.Lost(loss(1, 1)), Broken, Abort, End)
	if !errors.Is(effects[0].Err, ErrGroupBroken) {
		t.Fatalf("cause %v is not ErrGroupBroken", effects[0].Err)
	}
	concerns(t, effects[1], 1)
	expect(t, l, l.Lost(loss(1, 0)), Broken) // the others follow
	if l.cause.Rank != 1 {
		t.Fatalf("cause is rank %d, want the first", l.cause.Rank)
	}
	expect(t, l, l.Gone(1, 1, now), Broken)
	expect(t, l, l.Gone(1, 0, now), Waiting, Release, Pause)
	concerns(t, expect(t, l, l.Resumed(1), Forming, Form)[0], 0, 1)
	if l.epoch != 2 {
		t.Fatalf("epoch is %d, want 2", l.epoch)
	}
}

func TestEventsOfAnotherEpochChangeNothing(t *testing.T) {
	l, now := serving(t, 2, Restart{}), time.Unix(0, 0)
	expect(t, l, l.Lost(loss(1, 0)), Broken, Abort, End)
	l.Gone(1, 0, now)
	l.Gone(1, 1, now)
	expect(t, l, l.Resumed(1), Forming, Form)
	expect(t, l, l.Lost(loss(1, 0)), Forming)
	expect(t, l, l.Gone(1, 0, now), Forming)
	expect(t, l, l.Left(1, 0, now), Forming)
	expect(t, l, l.LeaveOver(1), Forming)
	expect(t, l, l.Ready(1, 0, 7), Forming)
	expect(t, l, l.Resumed(1), Forming)
}

func TestALossWhileFirstLoadingIsFinal(t *testing.T) {
	l, now := New(2, Restart{Max: 5, Window: time.Minute}), time.Unix(0, 0)
	l.Start()
	concerns(t, expect(t, l, l.Lost(loss(1, 1)), Broken, Abort, End)[1], 0, 1)
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
	expect(t, l, l.Ready(1, 2, 8), Broken, Abort, End)
	if l.cause.Rank != 2 {
		t.Fatalf("cause is %v, want rank 2", l.cause)
	}
}

func TestTheRanksWhosePlanIsNotTheCommonOneAreNamed(t *testing.T) {
	for _, c := range []struct {
		plans []uint64
		odd   []int
	}{
		{[]uint64{7}, nil},
		{[]uint64{7, 7, 7}, nil},
		{[]uint64{8, 7, 7}, []int{0}},
		{[]uint64{7, 7, 8, 7}, []int{2}},
		{[]uint64{8, 7, 7, 9}, []int{0, 3}},
		{[]uint64{7, 8}, []int{1}}, // nobody can say: the lowest rank is right
		{[]uint64{8, 7, 8, 7}, []int{1, 3}},
	} {
		if odd, _ := outvoted(c.plans); !slices.Equal(odd, c.odd) {
			t.Errorf("of plans %v ranks %v differ, want %v", c.plans, odd, c.odd)
		}
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

// again brings a group that broke because of a rank to its next epoch: the others
// left, the rank is gone.
func again(t *testing.T, l *Machine, lost int) {
	t.Helper()
	for r := range l.ranks {
		if r != lost {
			l.Left(l.epoch, r, time.Unix(0, 0))
		}
	}
	expect(t, l, l.Gone(l.epoch, lost, time.Unix(0, 0)), Waiting, Release, Pause)
	concerns(t, expect(t, l, l.Resumed(l.epoch), Forming, Form)[0], lost)
}

func TestOnlyTheLostRankIsStartedAgain(t *testing.T) {
	for lost := range 3 { // rank 0 like any other
		l := serving(t, 3, Restart{})
		concerns(t, expect(t, l, l.Lost(loss(1, lost)), Broken, Abort, End)[1], lost)
		again(t, l, lost)
		for r := range 2 {
			expect(t, l, l.Ready(2, r, 7), Forming)
		}
		expect(t, l, l.Ready(2, 2, 7), Serving, Serve)
	}
}

func TestASurvivorWithAnotherPlanIsTheNextToGo(t *testing.T) {
	l := serving(t, 2, Restart{})
	l.Lost(loss(1, 0))
	again(t, l, 0)
	l.Ready(2, 0, 7)
	concerns(t, expect(t, l, l.Ready(2, 1, 8), Broken, Abort, End)[1], 1)
}

func TestARankThatIsToEndCannotJustLeave(t *testing.T) {
	l, now := serving(t, 2, Restart{}), time.Unix(0, 0)
	l.Lost(loss(1, 0))
	expect(t, l, l.Left(1, 0, now), Broken)
	expect(t, l, l.Left(1, 1, now), Broken)
	expect(t, l, l.Gone(1, 0, now), Waiting, Release, Pause)
}

func TestARankThatDoesNotLeaveIsEnded(t *testing.T) {
	l, now := serving(t, 3, Restart{}), time.Unix(0, 0)
	l.Lost(loss(1, 0))
	l.Gone(1, 0, now)
	l.Left(1, 1, now)
	concerns(t, expect(t, l, l.LeaveOver(1), Broken, End)[0], 2)
	expect(t, l, l.Left(1, 2, now), Broken) // too late
	expect(t, l, l.Gone(1, 2, now), Waiting, Release, Pause)
	concerns(t, expect(t, l, l.Resumed(1), Forming, Form)[0], 0, 2)
}

func TestTwoThatDieAtOnceAreBothStartedAgain(t *testing.T) {
	l, now := serving(t, 3, Restart{}), time.Unix(0, 0)
	l.Lost(loss(1, 1))
	l.Lost(loss(1, 2))
	l.Gone(1, 2, now)
	l.Gone(1, 1, now)
	expect(t, l, l.Left(1, 0, now), Waiting, Release, Pause)
	concerns(t, expect(t, l, l.Resumed(1), Forming, Form)[0], 1, 2)
}

func TestASurvivorThatDiesBetweenEpochsIsStartedAgain(t *testing.T) {
	l, now := serving(t, 2, Restart{}), time.Unix(0, 0)
	l.Lost(loss(1, 0))
	l.Left(1, 1, now)
	expect(t, l, l.Gone(1, 0, now), Waiting, Release, Pause)
	expect(t, l, l.Gone(1, 1, now), Waiting)
	concerns(t, expect(t, l, l.Resumed(1), Forming, Form)[0], 0, 1)
}

func TestASurvivorThatDiesWhileItRejoinsEndsOnlyItself(t *testing.T) {
	l, now := serving(t, 3, Restart{}), time.Unix(0, 0)
	l.Lost(loss(1, 0))
	again(t, l, 0)
	concerns(t, expect(t, l, l.Lost(loss(2, 1)), Broken, Abort, End)[1], 1)
	l.Gone(2, 1, now)
	l.Left(2, 2, now)
	expect(t, l, l.Gone(2, 0, now), Waiting, Release, Pause) // its load was cut short
	concerns(t, expect(t, l, l.Resumed(2), Forming, Form)[0], 0, 1)
}

func TestEpochsThatKeepBreakingBeforeTheyServeEndAllProcesses(t *testing.T) {
	l := serving(t, 3, Restart{})
	l.Lost(loss(1, 0))
	again(t, l, 0)
	l.Lost(loss(2, 1))
	again(t, l, 1)
	concerns(t, expect(t, l, l.Lost(loss(3, 2)), Broken, Abort, End)[1], 0, 1, 2)
}

func TestALossOfNobodyInParticularEndsAllProcesses(t *testing.T) {
	l := serving(t, 2, Restart{})
	concerns(t, expect(t, l, l.Lost(loss(1, -1)), Broken, Abort, End)[1], 0, 1)
}

func TestAGroupThatMayNotRestartEndsAllProcesses(t *testing.T) {
	l := serving(t, 2, Restart{Disabled: true})
	concerns(t, expect(t, l, l.Lost(loss(1, 1)), Broken, Abort, End)[1], 0, 1)
}

func TestARankThatIsGoneWithoutAWordEndsTheEpoch(t *testing.T) {
	l, now := serving(t, 1, Restart{}), time.Unix(0, 0)
	expect(t, l, l.Gone(1, 0, now), Waiting, Abort, Release, Pause)
	l = serving(t, 1, Restart{})
	concerns(t, expect(t, l, l.Left(1, 0, now), Broken, Abort, End)[1], 0)
	expect(t, l, l.Gone(1, 0, now), Waiting, Release, Pause)
}

func TestAnEpochThatGetsNoMemoryKeepsTheSurvivors(t *testing.T) {
	l, now := serving(t, 2, Restart{}), time.Unix(0, 0)
	l.Lost(loss(1, 0))
	again(t, l, 0)
	expect(t, l, l.FormFailed(loss(2, -1), now), Waiting, Pause)
	concerns(t, expect(t, l, l.Resumed(2), Forming, Form)[0], 0)
}

// Whatever comes in whatever order: an epoch's memory is released once and only
// when all its ranks have left or are gone, a new one is formed only after that, no
// rank has two processes, and nothing happens after the end.
func TestNoOrderOfEventsLeaksOrOverlapsEpochs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const ranks = 3
		restart := Restart{Max: rapid.IntRange(1, 4).Draw(t, "max")}
		if err := restart.Validate(); err != nil {
			t.Fatal(err)
		}
		l, held, finished := New(ranks, restart), uint32(0), false
		// What is true of the ranks, whatever the machine thinks.
		lives, inside, doomed := [ranks]bool{}, [ranks]bool{}, [ranks]bool{}
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
					for r := range ranks {
						if start := slices.Contains(e.Ranks, r); start == lives[r] || doomed[r] && lives[r] {
							t.Fatalf("rank %d is started: %v, lives: %v, is to end: %v", r, start, lives[r], doomed[r])
						}
						lives[r], inside[r], doomed[r] = true, true, false
					}
				case End:
					for _, r := range e.Ranks {
						if !lives[r] {
							t.Fatalf("rank %d ends, which has no process", r)
						}
						doomed[r] = true
					}
				case Release:
					if held != l.epoch || slices.Contains(inside[:], true) {
						t.Fatalf("epoch %d released with ranks inside %v, %d held", l.epoch, inside, held)
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
		for range rapid.IntRange(0, 120).Draw(t, "events") {
			age := uint32(rapid.IntRange(0, 1).Draw(t, "age"))
			epoch := max(1, l.epoch-age)
			rank := rapid.IntRange(0, ranks-1).Draw(t, "rank")
			switch rapid.IntRange(0, 12).Draw(t, "event") {
			case 0, 1, 2, 3:
				apply(l.Ready(epoch, rank, 7))
			case 4:
				apply(l.Lost(loss(epoch, rank)))
			case 5, 6: // a process ends
				if !lives[rank] {
					continue
				}
				if rapid.Bool().Draw(t, "explained") {
					apply(l.Lost(loss(l.epoch, rank)))
				}
				lives[rank], inside[rank] = false, false
				apply(l.Gone(l.epoch, rank, time.Unix(0, 0)))
			case 7, 8, 9: // a rank leaves, perhaps one that will be ended
				if epoch == l.epoch && !inside[rank] {
					continue
				}
				if epoch == l.epoch && !doomed[rank] {
					inside[rank] = false
				}
				apply(l.Left(epoch, rank, time.Unix(0, 0)))
			case 10:
				apply(l.Resumed(epoch))
			case 11:
				apply(l.LeaveOver(epoch))
			case 12:
				if rapid.IntRange(0, 5).Draw(t, "really") == 0 {
					apply(l.Stop())
				}
			}
		}
	})
}
