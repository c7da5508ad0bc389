package actors

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/octet-run/octet/faults"
)

// patient is a configuration that takes no starved rank for a lost one.
func patient(ranks int) Config {
	return Config{
		Ranks: ranks, Launcher: processes(), Stall: limit, LeaveTimeout: limit,
		Restart: Restart{Max: 1000, MaxPause: time.Nanosecond},
	}
}

func pids(g *Group) (pids []int) {
	for _, r := range g.Status().Ranks {
		pids = append(pids, r.PID)
	}
	return pids
}

// serves waits until the group serves an epoch, and runs rounds in it.
func serves(t *testing.T, g *Group, epoch uint32) {
	t.Helper()
	eventually(t, func() bool { return g.Epoch() == epoch || g.Err() != nil })
	if g.Err() != nil {
		t.Fatalf("epoch is %d, want %d: %+v, %v", g.Epoch(), epoch, g.Status(), g.Err())
	}
	for i := range int32(3) {
		do(t, g, epoch, i+1)
	}
}

// replaced checks which ranks have another process than before, how often they were
// started again, and that nobody else was.
func replaced(t *testing.T, g *Group, before []int, restarts ...int) {
	t.Helper()
	for r, s := range g.Status().Ranks {
		if other := s.PID != before[r]; other != (restarts[r] > 0) || s.Restarts != restarts[r] {
			t.Errorf("rank %d: pid %d, was %d; %d restarts, want %d", r, s.PID, before[r], s.Restarts, restarts[r])
		}
	}
}

func TestOnlyTheLostRankGetsANewProcess(t *testing.T) {
	for lost := range 3 {
		t.Run(fmt.Sprintf("rank %d", lost), func(t *testing.T) {
			var mu sync.Mutex
			events := map[EventKind][]int{}
			config := patient(3)
			config.OnEvent = func(e Event) {
				mu.Lock()
				defer mu.Unlock()
				if e.Epoch == 2 && (e.Kind == RankStarted || e.Kind == RankRejoins) {
					events[e.Kind] = append(events[e.Kind], e.Rank)
				}
			}
			g := start(t, config)
			before := pids(g)
			serves(t, g, 1)
			g.Signal(lost, unix.SIGKILL)
			serves(t, g, 2)
			want := []int{0, 0, 0}
			want[lost] = 1
			replaced(t, g, before, want...)
			mu.Lock()
			defer mu.Unlock()
			if slices.Sort(events[RankRejoins]); !slices.Equal(events[RankStarted], []int{lost}) || len(events[RankRejoins]) != 2 {
				t.Errorf("events of epoch 2: %v", events)
			}
		})
	}
}

func TestASurvivorHasNothingOfTheOldEpoch(t *testing.T) {
	g := start(t, patient(2))
	g.Signal(1, unix.SIGKILL)
	serves(t, g, 2)
	mapped, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pids(g)[0]))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"octet-board", "octet-link"} {
		if n := strings.Count(string(mapped), name); n != 1 {
			t.Errorf("%s is mapped %d times, want once", name, n)
		}
	}
}

func TestARankInProcessKeepsItsEngine(t *testing.T) {
	var made atomic.Int32
	config := patient(3)
	config.Launcher = InProcess{Engine: func(in *Inherited) (Engine, error) {
		made.Add(1)
		return newFakeEngine(in), nil
	}}
	g := start(t, config)
	for epoch := range uint32(3) {
		serves(t, g, epoch+1)
		g.Signal(1, unix.SIGKILL)
	}
	serves(t, g, 4)
	if n := made.Load(); n != 6 {
		t.Errorf("%d engines were made, want 3 and one for each loss", n)
	}
}

// Ranks that start together can load together. One that takes a lost one's place would
// wait in vain.
func TestAnEpochIsFreshIfAllRanksStartForIt(t *testing.T) {
	var mu sync.Mutex
	made := map[uint32][]bool{}
	config := patient(3)
	config.Launcher = InProcess{Engine: func(in *Inherited) (Engine, error) {
		mu.Lock()
		defer mu.Unlock()
		made[in.Epoch] = append(made[in.Epoch], in.Fresh)
		return newFakeEngine(in), nil
	}}
	g := start(t, config)
	serves(t, g, 1)
	g.Signal(1, unix.SIGKILL)
	serves(t, g, 2)
	g.Break(-1, "is broken, and nobody is to blame")
	serves(t, g, 3)
	mu.Lock()
	defer mu.Unlock()
	want := map[uint32][]bool{1: {true, true, true}, 2: {false}, 3: {true, true, true}}
	if !maps.EqualFunc(made, want, slices.Equal) {
		t.Errorf("epochs were fresh %v to the ranks that started, want %v", made, want)
	}
}

// There may be no memory for an epoch when one is needed.
func TestAnEpochWithoutMemoryIsTriedAgain(t *testing.T) {
	script, err := faults.Parse("at hit 2 fail at group.form", 2)
	if err != nil {
		t.Fatal(err)
	}
	config := patient(2)
	config.Faults = faults.NewInjector(script, faults.Supervisor)
	g := start(t, config)
	before := pids(g)
	serves(t, g, 1)
	g.Signal(1, unix.SIGKILL)
	serves(t, g, 3)
	if now := pids(g); now[0] != before[0] || now[1] == before[1] {
		t.Errorf("processes %v, were %v: want rank 0's to last", now, before)
	}
}

func TestTwoRanksThatDieAtOnceAreBothReplaced(t *testing.T) {
	g := start(t, patient(4))
	before := pids(g)
	g.Signal(0, unix.SIGKILL)
	g.Signal(2, unix.SIGKILL)
	eventually(t, func() bool { // the second may be late enough to end an epoch of its own
		s := g.Status().Ranks
		return s[0].Restarts == 1 && s[2].Restarts == 1 && g.Epoch() != 0
	})
	serves(t, g, g.Epoch())
	replaced(t, g, before, 1, 0, 1, 0)
}

func TestASurvivorThatDiesWhileItRejoinsIsReplacedToo(t *testing.T) {
	config := patient(3)
	config.EngineConfig = encode(plan{Rank: 1, Epoch: 2, Do: "crash"})
	g := start(t, config)
	before := pids(g)
	g.Signal(2, unix.SIGKILL)
	serves(t, g, 3)
	if now := pids(g); now[0] != before[0] || now[1] == before[1] || now[2] == before[2] {
		t.Errorf("processes %v, were %v: want rank 0's to last", now, before)
	}
}

func TestALossWhileAnotherRankLoads(t *testing.T) {
	config := patient(3)
	config.EngineConfig = encode(plan{Rank: 2, Epoch: 2, Do: "wait for the end"})
	ready := make(chan struct{})
	config.OnEvent = func(e Event) {
		if e.Kind == RankReady && e.Epoch == 2 && e.Rank == 0 {
			close(ready)
		}
	}
	g := start(t, config)
	before := pids(g)
	g.Signal(2, unix.SIGKILL)
	<-ready
	g.Signal(0, unix.SIGKILL)
	serves(t, g, 3)
	replaced(t, g, before, 1, 0, 2)
}

func TestASurvivorThatDoesNotLeaveInTimeIsReplaced(t *testing.T) {
	config := patient(3)
	config.LeaveTimeout = 300 * time.Millisecond
	g := start(t, config)
	before := pids(g)
	halt(t, g, 1)
	g.Signal(2, unix.SIGKILL)
	serves(t, g, 2)
	if now := pids(g); now[1] == before[1] || now[2] == before[2] {
		t.Errorf("processes %v, were %v: want those of ranks 1 and 2 replaced", now, before)
	}
}

func TestARankWhoseEngineCannotOutliveAnEpochIsStartedAnew(t *testing.T) {
	t.Run("processes", func(t *testing.T) {
		config := patient(3)
		config.EngineConfig = encode(plan{Rank: 0, Round: 1 << 40, Do: "be unable to leave"})
		g := start(t, config)
		before := pids(g)
		g.Signal(2, unix.SIGKILL)
		serves(t, g, 2)
		replaced(t, g, before, 1, 0, 1)
	})
	t.Run("in process", func(t *testing.T) {
		config := patient(2)
		config.Launcher = InProcess{Engine: func(in *Inherited) (Engine, error) { return struct{ Engine }{newFakeEngine(in)}, nil }}
		g := start(t, config)
		g.Signal(1, unix.SIGKILL)
		serves(t, g, 2)
		if ranks := g.Status().Ranks; ranks[0].Restarts != 1 || ranks[1].Restarts != 1 {
			t.Errorf("status is %+v", ranks)
		}
	})
}

func TestASurvivorWithAnotherPlanIsReplaced(t *testing.T) {
	config := patient(3)
	config.EngineConfig = encode(plan{Rank: 1, Epoch: 2, Do: "another plan"})
	g := start(t, config)
	before := pids(g)
	g.Signal(2, unix.SIGKILL)
	serves(t, g, 3)
	if now := pids(g); now[0] != before[0] || now[1] == before[1] {
		t.Errorf("processes %v, were %v: want rank 1's replaced and rank 0's not", now, before)
	}
}

func TestADeathWhileTheGroupStopsIsNoLoss(t *testing.T) {
	before := openFiles(t)
	config := patient(3)
	g := start(t, config)
	halt(t, g, 1) // or it would be gone at once
	stopped := make(chan error)
	go func() { stopped <- g.Stop(context.Background()) }()
	eventually(t, func() bool { return g.Status().Phase != Serving })
	g.Signal(1, unix.SIGKILL)
	if err := <-stopped; err != nil {
		t.Errorf("stop: %v", err)
	}
	if n := g.Status().Restarts; n != 0 {
		t.Errorf("%d restarts", n)
	}
	nothingLeft(t)
	settled(t, before)
}

func TestAGroupStopsWhileSurvivorsWaitForTheNextEpoch(t *testing.T) {
	both(t, func(t *testing.T, launcher Launcher) {
		before := openFiles(t)
		config := patient(3)
		config.Launcher = launcher
		config.Restart = Restart{Pause: time.Hour, MaxPause: time.Hour}
		g := start(t, config)
		g.Signal(1, unix.SIGKILL)
		serves(t, g, 2)
		g.Signal(1, unix.SIGKILL)
		eventually(t, func() bool { return g.Status().Phase == Waiting })
		if err := g.Stop(t.Context()); err != nil {
			t.Errorf("stop: %v", err)
		}
		nothingLeft(t)
		settled(t, before)
	})
}
