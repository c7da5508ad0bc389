package collectives

import (
	"context"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/octet-run/octet/collectives/transport"
)

// Torture runs random all-reduces among processes that are stopped and resumed at
// random, with operation numbers that wrap on the way.
type Torture struct {
	Seed       uint64
	Operations int // all-reduces, in groups of at most 10,000
	// Command makes the process of one rank, which calls RankTorture.Run.
	Command func(t RankTorture, ranks int) RankCommand
	// Progress, if set, is told after each group how many operations are done.
	Progress func(done int)
}

// tortureGroup is the operations of one group of processes.
const tortureGroup = 10000

// Run returns the first wrong bit, hang or mismatch. Groups have 2 to 8 ranks, every
// other one 8.
func (t Torture) Run(ctx context.Context) error {
	for group, done := uint64(0), 0; done < t.Operations; group++ {
		n := min(tortureGroup, t.Operations-done)
		if err := t.group(ctx, RankTorture{Seed: t.Seed + group, Operations: n}); err != nil {
			return err
		}
		if done += n; t.Progress != nil {
			t.Progress(done)
		}
	}
	return nil
}

// Caught runs a control and returns the error that it leads to, or nil if nobody
// noticed in 10,000 operations.
func (t Torture) Caught(ctx context.Context, control Control) error {
	return t.group(ctx, RankTorture{Seed: t.Seed, Operations: tortureGroup, Control: control})
}

func (t Torture) group(ctx context.Context, r RankTorture) error {
	rng := rand.New(rand.NewPCG(r.Seed, 0))
	ranks := transport.MaxRanks
	if r.Seed%2 == 1 {
		ranks = 2 + rng.IntN(transport.MaxRanks-1)
	}
	// The numbers wrap, as signed or as unsigned ones, in the course of the group.
	wraps := []uint32{math.MaxInt32, math.MaxUint32}[rng.IntN(2)]
	s := &stopper{rng: rand.New(rand.NewPCG(r.Seed, 1))}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var stopping sync.WaitGroup
	defer stopping.Wait()
	defer s.end()
	stopping.Go(func() { s.run(ctx) })
	_, err := launch{
		config: transport.Config{
			Ranks: ranks, MaxRows: 1, MaxWidth: tortureElements, HugePages: rng.IntN(2) == 0,
			Epoch: wraps + uint32(r.Seed), FirstOp: wraps - uint32(rng.IntN(max(r.Operations, 1))),
		},
		command: t.Command(r, ranks),
		started: func(_ int, p *os.Process) { s.add(p) },
		ended:   func(_ *transport.Group, _ int, err error) error { s.end(); return err },
	}.run(ctx)
	return err
}

// stopper stops processes at random, wherever they are, and resumes them.
type stopper struct {
	rng   *rand.Rand // run's
	mu    sync.Mutex
	procs []*os.Process
	over  bool
}

func (s *stopper) add(p *os.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.procs = append(s.procs, p)
}

// end stops nobody any more: the first rank is through, or failed.
func (s *stopper) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
}

func (s *stopper) run(ctx context.Context) {
	for ctx.Err() == nil {
		time.Sleep(time.Duration(s.rng.IntN(int(20 * time.Millisecond))))
		if !s.stopOne() {
			return
		}
	}
}

// stopOne holds one process for up to 10 ms.
func (s *stopper) stopOne() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
	}
	if len(s.procs) == 0 {
		return true
	}
	p := s.procs[s.rng.IntN(len(s.procs))]
	if p.Signal(syscall.SIGSTOP) == nil {
		time.Sleep(time.Duration(s.rng.IntN(int(10 * time.Millisecond))))
		_ = p.Signal(syscall.SIGCONT)
	}
	return true
}
