package transport

import (
	"errors"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/octet-run/octet/internal/shm"
	"github.com/octet-run/octet/internal/testgroup"
)

func newGroup(t *testing.T, cfg Config) *Group {
	t.Helper()
	g, err := Create(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

func attach(t *testing.T, g *Group, rank int, p Polling) *SharedMemory {
	t.Helper()
	m, err := g.Attach(rank, p)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func dup(t *testing.T, f *os.File) *os.File {
	t.Helper()
	fd, err := unix.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), f.Name())
}

func TestConfigsThatCannotBeAreRefused(t *testing.T) {
	for _, c := range []Config{
		{Ranks: 0, MaxRows: 1, MaxWidth: 1},
		{Ranks: MaxRanks + 1, MaxRows: 1, MaxWidth: 1},
		{Ranks: 2, MaxRows: 0, MaxWidth: 1},
		{Ranks: 2, MaxRows: 1 << 20, MaxWidth: 1 << 20},
	} {
		if g, err := Create(c); err == nil {
			_ = g.Close()
			t.Errorf("%+v was accepted", c)
		}
	}
}

func TestBuffersOfAGroupDoNotOverlap(t *testing.T) {
	l := layout{ranks: 3, capacity: 1000}
	seen := map[int]string{}
	add := func(region Region, owner, peer int) {
		for parity := range 2 {
			off := l.bufferOff(region, owner, peer, parity)
			if off < l.buffersOff() || off+l.bufferBytes() > l.size() || off%page != 0 {
				t.Errorf("%v %d %d: offset %d is not a page inside the segment", region, owner, peer, off)
			}
			if who, taken := seen[off]; taken {
				t.Errorf("%v %d %d lies where %s is", region, owner, peer, who)
			}
			seen[off] = region.String()
		}
	}
	add(Common, 0, 0)
	add(CommonNormed, 0, 0)
	for owner := range 3 {
		for _, region := range []Region{Partial, Result, Normed, Scratch} {
			add(region, owner, 0)
		}
		for peer := range 3 {
			add(Inbox, owner, peer)
		}
	}
}

func TestOpenMapsTheSameGroup(t *testing.T) {
	g := newGroup(t, Config{Ranks: 2, MaxRows: 3, MaxWidth: 5, Epoch: 9})
	other, err := Open(dup(t, g.File()))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if other.Ranks() != 2 || other.Epoch() != 9 {
		t.Fatalf("opened %d ranks, epoch %d", other.Ranks(), other.Epoch())
	}
	attach(t, g, 0, Polling{}).Memory(Partial, 0, 0, 4)[2] = 42
	if got := attach(t, other, 1, Polling{}).Memory(Partial, 0, 0, 4)[2]; got != 42 {
		t.Fatalf("the other mapping reads %v", got)
	}
}

func TestOpenRefusesWhatIsNoGroup(t *testing.T) {
	seg, err := shm.Create("octet-test", 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	defer seg.Close()
	if _, err := Open(dup(t, seg.File())); err == nil || !strings.Contains(err.Error(), "not the segment of a group") {
		t.Errorf("empty segment: %v", err)
	}
	g := newGroup(t, Config{Ranks: 2, MaxRows: 1, MaxWidth: 64})
	if err := g.File().Truncate(int64(g.size() - page)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dup(t, g.File())); err == nil || !strings.Contains(err.Error(), "its header asks for") {
		t.Errorf("truncated segment: %v", err)
	}
}

func TestFlagsSurviveWrapAround(t *testing.T) {
	for _, op := range []uint32{math.MaxInt32, math.MaxUint32} {
		g := newGroup(t, Config{Ranks: 2, MaxRows: 1, MaxWidth: 1, FirstOp: op})
		early := attach(t, g, 0, Polling{Timeout: time.Millisecond})
		if err := early.Await(1, 3, op, Scatter); err == nil {
			t.Errorf("operation %d: a flag that was not raised satisfied a wait", op)
		}
		g.Reset(1, op)
		a, b := attach(t, g, 0, Polling{}), attach(t, g, 1, Polling{})
		for range 3 {
			b.Signal(0, 3, op)
			if err := a.Await(1, 3, op, Scatter); err != nil {
				t.Errorf("operation %d: %v", op, err)
			}
			op++
		}
	}
}

func TestFlagsOfAnotherEpochAreIgnored(t *testing.T) {
	g := newGroup(t, Config{Ranks: 2, MaxRows: 1, MaxWidth: 1, Epoch: 1})
	stale := attach(t, g, 1, Polling{})
	g.Reset(2, 0)
	now := attach(t, g, 0, Polling{Timeout: 5 * time.Millisecond})
	stale.Post(0, Descriptor{})
	stale.Signal(0, 0, 0)
	if stale.Arrive(0) {
		t.Error("a rank of the old epoch was counted")
	}
	if _, ok := stale.Claim(0, 1); ok {
		t.Error("a rank of the old epoch claimed work")
	}
	var timeout *TimeoutError
	if err := now.Await(1, 0, 0, Scatter); !errors.As(err, &timeout) || timeout.Rank != 1 {
		t.Errorf("a flag of the old epoch satisfied a wait: %v", err)
	}
	if err := stale.Err(); !errors.Is(err, shm.ErrAborted) {
		t.Errorf("a rank of the old epoch is told %v", err)
	}
}

func TestAbortEndsASleepingWait(t *testing.T) {
	g := newGroup(t, Config{Ranks: 2, MaxRows: 1, MaxWidth: 1})
	errs := testgroup.Goroutines(t, 2, 2*time.Minute, func(rank int) error {
		if rank == 1 {
			time.Sleep(20 * time.Millisecond)
			g.Abort(1, shm.Died)
			return nil
		}
		m, err := g.Attach(0, Polling{})
		if err != nil {
			return err
		}
		return m.Await(1, 0, 0, Gather)
	})
	var abort *shm.AbortError
	if !errors.As(errs[0], &abort) || abort.Rank != 1 || abort.Reason != shm.Died {
		t.Errorf("wait ended with %v", errs[0])
	}
}

// The waits of this test would last an hour: only a wake ends them.
func TestAbortWakesSleepersOfEveryKind(t *testing.T) {
	for name, sleeper := range map[string]func(m *SharedMemory) (count, word *shm.Word){
		"finish": func(m *SharedMemory) (count, word *shm.Word) { return m.finishSleepers, m.finish.Low() },
		"post":   func(m *SharedMemory) (count, word *shm.Word) { return m.sleepers[1], m.posts[1].Low() },
		"signal": func(m *SharedMemory) (count, word *shm.Word) { return m.asleep[0], m.incoming[2*Tags+Tags-1].Low() },
	} {
		for who, abort := range map[string]func(g *Group, m *SharedMemory){
			"supervisor": func(g *Group, _ *SharedMemory) { g.Abort(1, shm.Died) },
			"rank":       func(_ *Group, m *SharedMemory) { m.Abort(1, shm.TimedOut) },
		} {
			t.Run(name+" by "+who, func(t *testing.T) {
				g := newGroup(t, Config{Ranks: 3, MaxRows: 1, MaxWidth: 1})
				m := attach(t, g, 0, Polling{})
				count, word := sleeper(m)
				count.Add(1)
				woken := make(chan struct{})
				go func() {
					defer close(woken)
					word.Block(word.Load(), 2*time.Minute)
				}()
				begun := time.Now()
				for epoch := uint32(0); ; epoch++ { // it may not be asleep yet
					g.seg.Word(epochOff).Store(epoch)
					m.epoch = epoch
					abort(g, m)
					select {
					case <-woken:
						if time.Since(begun) >= 2*time.Minute {
							t.Fatal("only the end of its wait woke it")
						}
						return
					case <-time.After(time.Millisecond):
					}
				}
			})
		}
	}
}

// Post flags jump over what two ranks exchange outside operations. A third that has
// gone on to the next one is no reason to ask who is out of step.
func TestExchangesOutsideOperationsAreNotVotedOn(t *testing.T) {
	g := newGroup(t, Config{Ranks: 3, MaxRows: 1, MaxWidth: 1})
	attach(t, g, 2, Polling{}).Post(19, Descriptor{Kind: Barrier, Hash: 7})
	other := attach(t, g, 1, Polling{})
	polls := 0
	m := attach(t, g, 0, Polling{Idle: func() {
		if polls++; polls == 3 {
			other.Signal(0, 1, 5)
		}
	}})
	m.Post(0, Descriptor{Kind: Barrier, Hash: 1})
	if err := m.Await(1, 1, 5, Exchange); err != nil {
		t.Fatal(err)
	}
	if polls != 3 {
		t.Errorf("the flag was seen after %d polls, raised in the third", polls)
	}
}

// A wait that is over does not hide whom the others wait for.
func TestBlameFollowsTheChainOfWaits(t *testing.T) {
	g := newGroup(t, Config{Ranks: 4, MaxRows: 1, MaxWidth: 1})
	m := make([]*SharedMemory, 4)
	for r := range m {
		m[r] = attach(t, g, r, Polling{Timeout: 5 * time.Millisecond})
		m[r].Post(0, Descriptor{})
	}
	// 0 waits for 1, 1 waits for 2, 2 runs.
	m[1].states[1].Store(state{op: 0, what: waiting, on: 2, tag: 0}.pack())
	m[2].states[2].Store(state{op: 0, what: running}.pack())
	var timeout *TimeoutError
	if err := m[0].Await(1, 0, 0, Gather); !errors.As(err, &timeout) || timeout.Rank != 2 {
		t.Errorf("running: %v", err)
	}
	// 2 waits for 3, which has raised the flag: 2 is stuck.
	g.Reset(1, 0)
	for r := range m {
		m[r] = attach(t, g, r, Polling{Timeout: 5 * time.Millisecond})
		m[r].Post(0, Descriptor{})
	}
	m[1].states[1].Store(state{op: 0, what: waiting, on: 2, tag: 0}.pack())
	m[2].states[2].Store(state{op: 0, what: waiting, on: 3, tag: 1}.pack())
	m[3].Signal(2, 1, 0)
	if err := m[0].Await(1, 0, 0, Gather); !errors.As(err, &timeout) || timeout.Rank != 2 {
		t.Errorf("satisfied: %v", err)
	}
}

func TestALongWaitTellsForWhom(t *testing.T) {
	g := newGroup(t, Config{Ranks: 3, MaxRows: 1, MaxWidth: 1})
	told := make(chan int, 1)
	m := attach(t, g, 0, Polling{Misses: func(rank int) {
		select {
		case told <- rank:
		default:
		}
	}})
	attach(t, g, 1, Polling{}).Post(0, Descriptor{})
	ended := make(chan error, 1)
	go func() {
		m.Post(0, Descriptor{})
		ended <- m.AwaitFinish(0, nil)
	}()
	select {
	case rank := <-told:
		if rank != 2 {
			t.Errorf("told of rank %d, want 2, which has not come", rank)
		}
	case err := <-ended:
		t.Fatalf("the wait ended with %v", err)
	}
	g.Abort(-1, shm.Requested)
	<-ended
}
