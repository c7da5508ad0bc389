package actors

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/internal/shm"
)

// Variables that make the test binary play a part in its own tests.
const (
	specVariable   = "OCTET_TEST_SPEC"   // be a rank
	parentVariable = "OCTET_TEST_PARENT" // be a supervisor of so many ranks, and wait
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(specVariable) != "":
		os.Exit(beRank(os.Getenv(specVariable)))
	case os.Getenv(parentVariable) != "":
		beParent()
	default:
		goleak.VerifyTestMain(m)
	}
}

func beRank(spec string) int {
	in, err := Inherit(spec)
	if err == nil {
		if in.Role != "" {
			err = RunBenchRank(context.Background(), in)
		} else {
			err = RunRank(context.Background(), in, newFakeEngine(in), zap.NewNop())
		}
		in.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "rank:", err)
	}
	return ExitCode(err)
}

// processes launches the test binary as ranks.
func processes() Launcher { return shell{} }

// shell passes the spec in the environment, because the test binary's arguments
// are not ours.
type shell struct{}

func (shell) Launch(l Launch) (RankProcess, error) {
	return Processes{
		Command: func(int, string) []string { return []string{os.Args[0]} },
		Env:     append(os.Environ(), specVariable+"="+l.Spec),
	}.Launch(l)
}

func inProcess() Launcher {
	return InProcess{Engine: func(in *Inherited) (Engine, error) { return newFakeEngine(in), nil }}
}

// plan is what a fakeEngine is to do, in Config.EngineConfig.
type plan struct {
	Rank  int    // whom it concerns
	Round uint64 // and in which round, 0: while loading
	Epoch uint32 // and in which epoch, 0: all
	Do    string
}

// fakeEngine records one operation a round and follows its plan.
type fakeEngine struct {
	in      *Inherited
	plan    plan
	aborted chan struct{}
	counts  map[uint16]int32
	leaked  [][]byte
}

// leaks is how much an engine that leaks keeps of an epoch.
const leaks = 16 << 10

// newFakeEngine makes an engine whose Abort may come before its Load.
func newFakeEngine(in *Inherited) *fakeEngine {
	return &fakeEngine{in: in, aborted: make(chan struct{}, 8), counts: map[uint16]int32{}}
}

func (e *fakeEngine) Load(ctx context.Context, config []byte, progress func(done, total uint64)) (Loaded, error) {
	if len(config) > 0 {
		if err := json.Unmarshal(config, &e.plan); err != nil {
			return Loaded{}, err
		}
	}
	loaded, err := e.enter(ctx, progress)
	if err != nil {
		return Loaded{}, err
	}
	if e.plan.Do == "collect" && e.in.Rank == e.plan.Rank {
		go collect()
	}
	for i := range uint64(4) {
		progress(25*(i+1), 100)
	}
	return loaded, nil
}

// enter is what Load and Rejoin have in common.
func (e *fakeEngine) enter(ctx context.Context, progress func(done, total uint64)) (Loaded, error) {
	e.counts = map[uint16]int32{}
	if e.plan.Do == "leak" && e.in.Rank == e.plan.Rank {
		e.leaked = append(e.leaked, make([]byte, leaks))
	}
	hash := uint64(7)
	if e.concerned(0) {
		switch e.plan.Do {
		case "another plan":
			hash++
		case "wait for the end":
			progress(1, 100)
			<-ctx.Done()
			return Loaded{}, ctx.Err()
		default:
			if err := e.misbehave(); err != nil {
				return Loaded{}, err
			}
		}
	}
	return Loaded{PlanHash: hash, Device: fmt.Sprintf("fake %d", e.in.Rank)}, nil
}

func (e *fakeEngine) Leave() error {
	if e.plan.Do == "be unable to leave" && e.in.Rank == e.plan.Rank {
		return errors.New("the device has lost its context")
	}
	e.counts = nil
	for len(e.aborted) > 0 {
		<-e.aborted
	}
	return nil
}

func (e *fakeEngine) Rejoin(ctx context.Context) (Loaded, error) {
	return e.enter(ctx, func(uint64, uint64) {})
}

// collect keeps the collector of a rank process running.
func collect() {
	for {
		runtime.GC()
	}
}

func (e *fakeEngine) concerned(seq uint64) bool {
	return e.plan.Do != "" && e.in.Rank == e.plan.Rank && seq == e.plan.Round && (e.plan.Epoch == 0 || e.plan.Epoch == e.in.Epoch)
}

// misbehave does what the plan says, or says what a rank would die of.
func (e *fakeEngine) misbehave() error {
	switch e.plan.Do {
	case "error":
		return errors.New("the device is lost")
	case "panic":
		panic("index out of range")
	case "crash": // beyond what can be recovered
		fmt.Fprintln(os.Stderr, "assertion failed in native code")
		_ = os.Stderr.Sync()
		self, _ := os.FindProcess(os.Getpid())
		_ = self.Kill()
		select {}
	case "begin to crash":
		fmt.Fprintln(os.Stderr, "fatal error: all goroutines are asleep")
		<-e.aborted
		return shm.ErrAborted
	case "exit":
		fmt.Fprintln(os.Stderr, "no memory")
		os.Exit(9)
	case "hang":
		<-e.aborted
		return shm.ErrAborted
	case "hang for good":
		select {}
	case "stop":
		_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
		select {} // the signal may strike another thread first
	case "other operation":
		e.in.Seat().Op(0xbad)
	case "slow":
		time.Sleep(30 * time.Millisecond)
	}
	return nil
}

func (e *fakeEngine) Step(r *round.Round) (*round.Result, uint64, error) {
	if e.plan.Do == "slow" && e.in.Rank == e.plan.Rank || e.concerned(r.Seq) {
		if err := e.misbehave(); err != nil {
			return nil, 0, err
		}
	}
	if e.plan.Do == "die while the group drains" {
		if e.in.Rank != e.plan.Rank {
			<-e.aborted
			return nil, 0, shm.ErrAborted
		}
		for !e.in.Seat().Draining() {
			time.Sleep(time.Millisecond)
			e.in.Seat().Beat()
		}
		os.Exit(9)
	}
	e.in.Seat().Op(r.Seq)
	result := &round.Result{}
	for _, entry := range r.Entries {
		if e.counts[entry.Slot]++; entry.Slot == liveSlot && e.in.Rank == 0 {
			e.counts[entry.Slot] = liveKiB()
		}
		result.Outcomes = append(result.Outcomes, round.Outcome{Slot: entry.Slot, Tokens: []int32{e.counts[entry.Slot]}})
	}
	if e.in.Rank != 0 {
		result = nil
	}
	return result, e.in.Seat().Hash(), nil
}

func (e *fakeEngine) Abort() {
	select {
	case e.aborted <- struct{}{}:
	default:
	}
}

func (e *fakeEngine) Close() error { return nil }

func start(t *testing.T, config Config) *Group {
	t.Helper()
	g, err := StartGroup(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		_ = g.Stop(ctx)
	})
	return g
}

func encode(p plan) []byte {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	return text
}

func decode(epoch uint32) *round.Round {
	return &round.Round{Epoch: epoch, Entries: []round.Entry{{Kind: round.Decode, Slot: 3, Tokens: []int32{1}}}}
}

// do runs a round and checks what comes back.
func do(t *testing.T, g *Group, epoch uint32, want int32) {
	t.Helper()
	result, err := g.Do(t.Context(), decode(epoch))
	if err != nil {
		t.Fatal(err)
	}
	if got := result.Outcomes[0].Tokens[0]; got != want {
		t.Fatalf("slot's round is %d, want %d", got, want)
	}
}

// nothingLeft checks that no child of this process is left.
func nothingLeft(t *testing.T) {
	t.Helper()
	task := fmt.Sprintf("/proc/%d/task/%d/children", os.Getpid(), os.Getpid())
	children, err := os.ReadFile(task)
	if err != nil {
		t.Skip("the kernel does not list children")
	}
	if rest := strings.TrimSpace(string(children)); rest != "" {
		t.Errorf("processes %s are left", rest)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// settled waits until the number of open files is want again.
func settled(t *testing.T, want int) {
	t.Helper()
	if !waitFor(func() bool { return openFiles(t) <= want }) {
		t.Errorf("%d files are open, %d before", openFiles(t), want)
	}
}

// limit is how long anything may take on a machine that is busy with other things.
const limit = 2 * time.Minute

// waitFor waits until a condition holds and says whether it came to that.
func waitFor(condition func() bool) bool {
	for deadline := time.Now().Add(limit); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// halt stops a rank's process and waits until the last of its threads stands still.
func halt(t *testing.T, g *Group, rank int) {
	t.Helper()
	threads := fmt.Sprintf("/proc/%d/task/*/stat", pids(g)[rank])
	g.Signal(rank, unix.SIGSTOP)
	eventually(t, func() bool {
		paths, _ := filepath.Glob(threads)
		for _, path := range paths {
			if stat, err := os.ReadFile(path); err == nil && !strings.Contains(string(stat), ") T ") {
				return false
			}
		}
		return len(paths) > 0
	})
}

// eventually fails the test if a condition never holds.
func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	if !waitFor(condition) {
		t.Fatalf("it did not come to that within %v", limit)
	}
}
