package actors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/octet-run/octet/internal/shm"
)

// both runs a test with ranks as processes and as goroutines.
func both(t *testing.T, test func(t *testing.T, launcher Launcher)) {
	t.Run("processes", func(t *testing.T) { test(t, processes()) })
	t.Run("in process", func(t *testing.T) { test(t, inProcess()) })
}

func TestAGroupRunsRoundsAndStops(t *testing.T) {
	both(t, func(t *testing.T, launcher Launcher) {
		before := openFiles(t)
		for _, ranks := range []int{1, 3, 8} {
			g, err := StartGroup(t.Context(), Config{Ranks: ranks, Launcher: launcher, Stall: limit})
			if err != nil {
				t.Fatal(err)
			}
			for i := range int32(20) {
				do(t, g, 1, i+1)
			}
			status := g.Status()
			if status.Phase != Serving || len(status.Ranks) != ranks || status.Ranks[ranks-1].Device != fmt.Sprintf("fake %d", ranks-1) ||
				status.Ranks[0].DoneBytes != 100 {
				t.Errorf("status is %+v", status)
			}
			if err := g.Stop(t.Context()); err != nil {
				t.Errorf("stop: %v", err)
			}
			if _, err := g.Do(t.Context(), decode(1)); !errors.Is(err, ErrStopped) {
				t.Errorf("a round after the stop: %v, want ErrStopped", err)
			}
		}
		settled(t, before)
		nothingLeft(t)
	})
}

func TestProgressIsReportedWhileLoading(t *testing.T) {
	var mu sync.Mutex
	kinds := map[EventKind]int{}
	start(t, Config{Ranks: 2, Launcher: processes(), OnEvent: func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		kinds[e.Kind]++
	}})
	mu.Lock()
	defer mu.Unlock()
	for _, kind := range []EventKind{GroupForms, RankStarted, RankLoading, RankReady, GroupServes} {
		if kinds[kind] == 0 {
			t.Errorf("no event %q among %v", kind, kinds)
		}
	}
}

func TestALossWhileLoadingIsToldAtOnceByName(t *testing.T) {
	for do, want := range map[string]string{
		"error":         "the device is lost",
		"panic":         "index out of range",
		"crash":         "SIGKILL; its last words: \"assertion failed in native code\"",
		"exit":          "exit status 9; its last words: \"no memory\"",
		"another plan":  "plan 0000000000000008: ranks [2] differ from the others, which have 0000000000000007",
		"hang for good": "made no progress in loading",
		"stop":          "does not get ready: its process is stopped",
	} {
		t.Run(do, func(t *testing.T) {
			before := openFiles(t)
			config := Config{Ranks: 4, Launcher: processes(), EngineConfig: encode(plan{Rank: 2, Do: do})}
			if do == "hang for good" {
				config.LoadStall = 15 * time.Second // the others load meanwhile, however slowly
			}
			_, err := StartGroup(t.Context(), config)
			var lost *RankError
			if !errors.As(err, &lost) || lost.Rank != 2 || !errors.Is(err, ErrGroupBroken) || !strings.Contains(err.Error(), want) {
				t.Errorf("error is %v, want rank 2 and %q", err, want)
			}
			settled(t, before)
			nothingLeft(t)
		})
	}
}

func TestAStartEndsWithItsContext(t *testing.T) {
	both(t, func(t *testing.T, launcher Launcher) {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err := StartGroup(ctx, Config{Ranks: 3, Launcher: launcher, EngineConfig: encode(plan{Rank: 1, Do: "wait for the end"})})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error is %v, want the deadline", err)
		}
		nothingLeft(t)
	})
}

func TestALossInARoundNamesTheRankAndTheGroupFormsAgain(t *testing.T) {
	for do, want := range map[string]string{
		"error":           "the device is lost",
		"panic":           "index out of range",
		"crash":           "SIGKILL",
		"exit":            "exit status 9",
		"hang":            "made no progress in round 3",
		"hang for good":   "made no progress in round 3",
		"begin to crash":  "has begun to crash, and does not end",
		"other operation": "out of step",
	} {
		t.Run(do, func(t *testing.T) {
			g := start(t, Config{
				Ranks: 4, Launcher: processes(), Stall: stallFor(do),
				EngineConfig: encode(plan{Rank: 2, Round: 3, Epoch: 1, Do: do}),
			})
			loseAndRecover(t, g, want)
		})
	}
}

func TestARankInProcessThatFailsIsReplaced(t *testing.T) {
	for do, want := range map[string]string{"error": "the device is lost", "panic": "index out of range", "hang": "made no progress"} {
		t.Run(do, func(t *testing.T) {
			g := start(t, Config{
				Ranks: 3, Launcher: inProcess(), Stall: stallFor(do),
				EngineConfig: encode(plan{Rank: 2, Round: 3, Epoch: 1, Do: do}),
			})
			loseAndRecover(t, g, want)
		})
	}
}

// stallFor is short where a stall is what is to be noticed: an end that comes slowly
// on a busy machine must not look like one.
func stallFor(do string) time.Duration {
	if strings.HasPrefix(do, "hang") {
		return time.Second
	}
	return limit
}

// loseAndRecover runs the rounds of epoch 1 up to the third, in which rank 2 is
// lost, and those of epoch 2.
func loseAndRecover(t *testing.T, g *Group, want string) {
	t.Helper()
	do(t, g, 1, 1)
	do(t, g, 1, 2)
	_, err := g.Do(t.Context(), decode(1))
	var lost *RankError
	if !errors.As(err, &lost) || !errors.Is(err, ErrGroupBroken) || lost.Rank != 2 || lost.Epoch != 1 || !strings.Contains(err.Error(), want) {
		t.Fatalf("error is %v, want rank 2 of epoch 1 and %q", err, want)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	epoch, err := g.WaitServing(ctx)
	if err != nil || epoch != 2 {
		t.Fatalf("serving again under epoch %d, %v, want 2", epoch, err)
	}
	if _, err := g.Do(t.Context(), decode(1)); !errors.Is(err, ErrStaleEpoch) {
		t.Errorf("a round of the old epoch: %v, want ErrStaleEpoch", err)
	}
	for i := range int32(5) {
		do(t, g, 2, i+1) // fresh engines count from 1
	}
	status := g.Status()
	if status.Restarts != 1 || status.Ranks[2].Lost != 1 || status.Ranks[1].Lost != 0 || status.Ranks[2].LastError == "" {
		t.Errorf("status after the loss is %+v", status)
	}
}

func TestAnIdleRankThatDiesOrStopsIsNoticed(t *testing.T) {
	for name, c := range map[string]struct {
		signal unix.Signal
		want   string
	}{
		"killed":  {unix.SIGKILL, "SIGKILL"},
		"stopped": {unix.SIGSTOP, "its process is stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			g := start(t, Config{Ranks: 3, Launcher: processes(), Stall: 500 * time.Millisecond})
			g.Signal(1, c.signal)
			eventually(t, func() bool { return g.Status().Restarts > 0 })
			if err := g.Status().Cause(); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "rank 1") {
				t.Errorf("cause is %v, want rank 1 and %q", err, c.want)
			}
			if epoch, err := g.WaitServing(t.Context()); err != nil || epoch != 2 {
				t.Fatalf("epoch %d, %v, want 2", epoch, err)
			}
			do(t, g, 2, 1)
		})
	}
}

func TestACrashLoopUsesUpTheBudgetAndCloses(t *testing.T) {
	g := start(t, Config{Ranks: 2, Launcher: inProcess(), Stall: limit, Restart: Restart{Max: 2, Pause: time.Millisecond}, EngineConfig: encode(plan{Rank: 1, Round: 1, Do: "error"})})
	losses := 0
	for {
		epoch, err := g.WaitServing(t.Context())
		if err != nil {
			var lost *RankError
			if !errors.As(err, &lost) || lost.Rank != 1 || !strings.Contains(err.Error(), "budget") {
				t.Errorf("final error is %v, want the budget and rank 1", err)
			}
			break
		}
		if _, err := g.Do(t.Context(), decode(epoch)); err == nil {
			t.Fatal("the round went well")
		}
		losses++
	}
	if losses != 3 {
		t.Errorf("%d losses, want 3: the first and two restarts", losses)
	}
	<-g.Done()
	if err := g.Stop(t.Context()); err == nil {
		t.Error("stop after the end: no error, want what ended it")
	}
}

func TestRoundsGoOnWhileARankCollectsGarbage(t *testing.T) {
	g := start(t, Config{Ranks: 2, Launcher: processes(), Stall: limit, EngineConfig: encode(plan{Rank: 1, Round: 1 << 40, Do: "collect"})})
	for i := range int32(200) {
		do(t, g, 1, i+1)
	}
}

func TestProbeHearsFromTheRanksThatLive(t *testing.T) {
	g := start(t, Config{Ranks: 3, Launcher: processes(), Stall: limit})
	health, err := g.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for r, h := range health {
		if int(h.GetRank()) != r || h.GetResidentBytes() == 0 || h.GetGoroutines() == 0 {
			t.Errorf("rank %d says %v", r, h)
		}
	}
	halt(t, g, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	health, err = g.Probe(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || health[1] != nil {
		t.Errorf("with rank 1 stopped: %v, %v", health[1], err)
	}
	g.Signal(1, unix.SIGCONT)
}

func TestBreakFormsTheGroupAgain(t *testing.T) {
	g := start(t, Config{Ranks: 2, Launcher: processes()})
	g.Break(1, "is restarted on request")
	eventually(t, func() bool { return g.Epoch() == 2 })
	do(t, g, 2, 1)
}

func TestARankThatDoesNotLeaveIsKilledAfterTheGrace(t *testing.T) {
	g := start(t, Config{Ranks: 2, Launcher: processes(), StopGrace: 200 * time.Millisecond, Stall: limit})
	halt(t, g, 1)
	if err := g.Stop(t.Context()); err != nil {
		t.Errorf("stop: %v", err)
	}
	nothingLeft(t)
}

func TestARankThatDiesInTheLastRoundIsNoticedBeforeTheGraceIsOver(t *testing.T) {
	g := start(t, Config{
		Ranks: 3, Launcher: processes(), EngineConfig: encode(plan{Rank: 1, Do: "die while the group drains", Round: 1}), StopGrace: 10 * time.Minute,
	})
	ended := make(chan error, 1)
	go func() {
		_, err := g.Do(context.Background(), decode(1))
		ended <- err
	}()
	for begun := false; !begun; time.Sleep(time.Millisecond) {
		f, err := g.formation(1)
		begun = err == nil && f.inRound.Load()
	}
	if err := g.Stop(t.Context()); err != nil {
		t.Errorf("stop: %v", err)
	}
	if err := <-ended; err == nil {
		t.Error("the round came to an end without its rank")
	}
	nothingLeft(t)
}

func TestAPanicOfTheSupervisorLeavesNothing(t *testing.T) {
	both(t, func(t *testing.T, launcher Launcher) {
		before := openFiles(t)
		g := start(t, Config{Ranks: 3, Launcher: launcher})
		do(t, g, 1, 1)
		g.Send(g.self, rankGone{}) // of nobody: the actor trips over it
		<-g.Done()
		if err := g.Err(); !errors.Is(err, ErrGroupBroken) || !strings.Contains(err.Error(), "an actor panicked") {
			t.Errorf("the group is over because of %v", err)
		}
		if _, err := g.Do(t.Context(), decode(1)); err == nil {
			t.Error("a round ran after the end")
		}
		settled(t, before)
		nothingLeft(t)
	})
}

func TestASlowRankIsNamedInTheStatus(t *testing.T) {
	g := start(t, Config{Ranks: 3, Launcher: inProcess(), Stall: limit, EngineConfig: encode(plan{Rank: 1, Round: 1 << 40, Do: "slow"})})
	seq := int32(0)
	eventually(t, func() bool {
		seq++
		do(t, g, 1, seq)
		return g.Status().Ranks[1].State == StateSlow
	})
}

func TestOnlyARankFarAboveTheMedianIsSlow(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		busy []time.Duration
		slow []int
	}{
		{[]time.Duration{20 * ms, 21 * ms, 29 * ms}, nil},                // half as long again is 30
		{[]time.Duration{20 * ms, 21 * ms, 33 * ms}, []int{2}},           // and more
		{[]time.Duration{1 * ms, 5 * ms, 1 * ms}, nil},                   // too little to matter
		{[]time.Duration{31 * ms, 1 * ms, 1 * ms, 40 * ms}, []int{0, 3}}, // two of four
		{[]time.Duration{40 * ms}, nil},
	} {
		ranks := make([]RankStatus, len(c.busy))
		for r, busy := range c.busy {
			ranks[r] = RankStatus{State: StateReady, Busy: busy}
		}
		markSlow(ranks)
		for r, rank := range ranks {
			if slow := rank.State == StateSlow; slow != slices.Contains(c.slow, r) {
				t.Errorf("of %v rank %d is %s, want %v slow", c.busy, r, rank.State, c.slow)
			}
		}
	}
}

func TestEachEpochHasSegmentsOfItsOwn(t *testing.T) {
	var mu sync.Mutex
	var epochs []uint32
	g := start(t, Config{Ranks: 2, Launcher: inProcess(), Segments: func(epoch uint32) (map[string]*shm.Segment, error) {
		mu.Lock()
		defer mu.Unlock()
		epochs = append(epochs, epoch)
		s, err := shm.Create("octet-test", 4096)
		return map[string]*shm.Segment{"slabs": s}, err
	}})
	g.Break(0, "test")
	eventually(t, func() bool { return g.Epoch() == 2 })
	mu.Lock()
	defer mu.Unlock()
	if len(epochs) != 2 || epochs[0] != 1 || epochs[1] != 2 {
		t.Fatalf("segments were made for epochs %v, want 1 and 2", epochs)
	}
}

func TestAGroupThatCannotGetMemoryDoesNotStart(t *testing.T) {
	_, err := StartGroup(t.Context(), Config{Ranks: 2, Launcher: processes(), Segments: func(uint32) (map[string]*shm.Segment, error) {
		return nil, errors.New("no space left")
	}})
	if err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Fatalf("error is %v, want the reason", err)
	}
}
