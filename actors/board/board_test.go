package board

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/faults"
	"github.com/octet-run/octet/internal/shm"
)

const epoch = 3

// unhurried is for rounds in which nobody stalls, on however busy a machine.
var unhurried = Patience{Stall: 2 * time.Minute}

func newBoard(t testing.TB, ranks int) *Board {
	t.Helper()
	b, err := Create(Config{Epoch: epoch, Ranks: ranks})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	b.Shared = true
	return b
}

func seatAt(t testing.TB, b *Board, rank int) *Seat {
	t.Helper()
	s, err := join(b.Segment(), epoch, rank)
	if err != nil {
		t.Fatal(err)
	}
	s.Shared = true
	return s
}

// serve answers rounds on a locked thread with step until its group ends.
func serve(s *Seat, step func(*Seat, *round.Round)) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		r, err := s.WaitRound(context.Background())
		if err != nil {
			return err
		}
		step(s, r)
	}
}

func answer(s *Seat, r *round.Round) {
	var result *round.Result
	if s.Rank() == 0 {
		result = &round.Result{}
		for _, e := range r.Entries {
			result.Outcomes = append(result.Outcomes, round.Outcome{Slot: e.Slot, Tokens: e.Tokens})
		}
	}
	s.Op(r.Seq)
	_ = s.Answer(r.Seq, s.Hash(), result)
}

// start runs a rank on every seat and returns what ends them all and gathers
// their errors. A nil step answers.
func start(t testing.TB, b *Board, step func(*Seat, *round.Round)) (end func() []error) {
	t.Helper()
	if step == nil {
		step = answer
	}
	errs := make([]error, b.ranks)
	var group sync.WaitGroup
	for r := range b.ranks {
		seat := seatAt(t, b, r)
		group.Go(func() { errs[seat.Rank()] = serve(seat, step) })
	}
	return func() []error {
		b.Drain()
		group.Wait()
		return errs
	}
}

func TestRoundsReachEveryRankAndTheResultComesBack(t *testing.T) {
	for _, ranks := range []int{1, 3, 8} {
		b := newBoard(t, ranks)
		end := start(t, b, nil)
		for seq := uint64(1); seq <= 50; seq++ {
			r := &round.Round{Epoch: epoch, Seq: seq, Entries: []round.Entry{{Kind: round.Decode, Slot: 2, Tokens: []int32{int32(seq)}}}}
			if err := b.Publish(r); err != nil {
				t.Fatal(err)
			}
			got, err := b.Collect(unhurried)
			if err != nil {
				t.Fatal(err)
			}
			if got.Seq != seq || got.Epoch != epoch || !slices.Equal(got.Outcomes[0].Tokens, []int32{int32(seq)}) {
				t.Fatalf("round %d of %d ranks came back as %+v", seq, ranks, got)
			}
		}
		for r, err := range end() {
			if !errors.Is(err, ErrDrained) {
				t.Errorf("rank %d ended with %v, want ErrDrained", r, err)
			}
		}
	}
}

func publish(t *testing.T, b *Board, seq uint64) {
	t.Helper()
	if err := b.Publish(&round.Round{Epoch: epoch, Seq: seq}); err != nil {
		t.Fatal(err)
	}
}

func TestASilentRankIsNamed(t *testing.T) {
	b := newBoard(t, 4)
	release := make(chan struct{})
	var there sync.WaitGroup // in the place where the stall is to find it
	there.Add(4)
	end := start(t, b, func(s *Seat, r *round.Round) {
		switch s.Rank() {
		case 2: // hangs before its first operation
			there.Done()
			<-release
			answer(s, r)
		case 1: // waits for it in the middle
			s.Op(1)
			there.Done()
			<-release
			answer(s, r)
		default:
			answer(s, r)
			there.Done()
		}
	})
	publish(t, b, 1)
	there.Wait()
	_, err := b.Collect(Patience{Stall: 100 * time.Millisecond})
	var stall *StallError
	if !errors.As(err, &stall) {
		t.Fatalf("error is %v, want a StallError", err)
	}
	if !slices.Equal(stall.Missing, []int{1, 2}) || !slices.Equal(stall.Behind, []int{2}) || stall.Deadline {
		t.Fatalf("stall is %+v, want 1 and 2 missing, 2 behind", stall)
	}
	close(release)
	end()
}

func TestARankThatHangsInACollectiveIsNamedByThoseThatWaitForIt(t *testing.T) {
	b := newBoard(t, 4)
	release := make(chan struct{})
	end := start(t, b, func(s *Seat, r *round.Round) {
		s.Op(1)
		s.BeginWait() // all are in the same operation
		if s.Rank() != 2 {
			s.WaitsFor(2)
		}
		<-release
		s.EndWait(0)
		answer(s, r)
	})
	publish(t, b, 1)
	_, err := b.Collect(Patience{Stall: 100 * time.Millisecond})
	var stall *StallError
	if !errors.As(err, &stall) || !slices.Equal(stall.Behind, []int{2}) {
		t.Errorf("error is %v, want a stall with rank 2 behind", err)
	}
	close(release)
	end()
}

func TestTheDeadlineHoldsHoweverPatientOneIs(t *testing.T) {
	b := newBoard(t, 2)
	release, answered := make(chan struct{}), make(chan struct{})
	end := start(t, b, func(s *Seat, r *round.Round) {
		if s.Rank() == 1 {
			<-release
			answer(s, r)
			return
		}
		answer(s, r)
		close(answered)
	})
	publish(t, b, 1)
	<-answered
	_, err := b.Collect(Patience{Stall: time.Hour, Deadline: 50 * time.Millisecond})
	var stall *StallError
	if !errors.As(err, &stall) || !stall.Deadline || !slices.Equal(stall.Missing, []int{1}) {
		t.Fatalf("error is %v, want the deadline and rank 1", err)
	}
	close(release)
	end()
}

func TestDivergingRanksAreNamedWithTheOperation(t *testing.T) {
	for name, c := range map[string]struct {
		step  func(*Seat)
		index int64
		op    uint64
		want  uint64
	}{
		"another operation": {func(s *Seat) { s.Op(10); s.Op(99); s.Op(12) }, 1, 99, 11},
		"one too few":       {func(s *Seat) { s.Op(10); s.Op(11) }, 2, 0, 12},
		"one too many":      {func(s *Seat) { s.Op(10); s.Op(11); s.Op(12); s.Op(13) }, 3, 13, 0},
		"beyond the trace": {func(s *Seat) {
			for i := range uint64(3 * traceOps) {
				s.Op(i)
			}
		}, -1, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBoard(t, 4)
			end := start(t, b, func(s *Seat, r *round.Round) {
				switch {
				case s.Rank() == 2:
					c.step(s)
				case c.index < 0: // equal traces at the end, after a difference long ago
					s.Op(77)
					for i := range uint64(3*traceOps - 1) {
						s.Op(i + 1)
					}
				default:
					s.Op(10)
					s.Op(11)
					s.Op(12)
				}
				var result *round.Result
				if s.Rank() == 0 {
					result = &round.Result{}
				}
				_ = s.Answer(r.Seq, s.Hash(), result)
			})
			publish(t, b, 1)
			_, err := b.Collect(unhurried)
			var diverged *DivergedError
			if !errors.As(err, &diverged) {
				t.Fatalf("error is %v, want a DivergedError", err)
			}
			if diverged.Rank != 2 || diverged.Index != c.index || diverged.Op != c.op || diverged.Want != c.want {
				t.Fatalf("diverged %+v, want rank 2, index %d, op %d for %d", diverged, c.index, c.op, c.want)
			}
			end()
		})
	}
}

func TestAnAbortEndsEveryWait(t *testing.T) {
	b := newBoard(t, 3)
	end := start(t, b, func(s *Seat, r *round.Round) {
		if s.Rank() != 1 {
			answer(s, r) // rank 1 never does
		}
	})
	publish(t, b, 1)
	var aborting sync.WaitGroup
	t.Cleanup(aborting.Wait) // the memory goes after it
	aborting.Go(func() {
		time.Sleep(20 * time.Millisecond)
		b.Abort(1, shm.Died)
	})
	_, err := b.Collect(unhurried)
	var abort *shm.AbortError
	if !errors.As(err, &abort) || abort.Rank != 1 || abort.Reason != shm.Died || abort.Epoch != epoch {
		t.Fatalf("error is %v, want the abort for rank 1", err)
	}
	for r, err := range end() {
		if !errors.Is(err, shm.ErrAborted) {
			t.Errorf("rank %d ended with %v, want the abort", r, err)
		}
	}
}

func TestARankThatFailsTellsWhy(t *testing.T) {
	b := newBoard(t, 2)
	end := start(t, b, func(s *Seat, r *round.Round) {
		if s.Rank() == 1 {
			s.Fail(r.Seq, "device lost")
		}
	})
	publish(t, b, 1)
	_, err := b.Collect(unhurried)
	var failed *FailedError
	if !errors.As(err, &failed) || failed.Rank != 1 || failed.Reason != "device lost" {
		t.Fatalf("error is %v, want rank 1's reason", err)
	}
	end()
}

func TestStaleRoundsAreRefused(t *testing.T) {
	b := newBoard(t, 1)
	for _, r := range []*round.Round{{Epoch: epoch - 1, Seq: 1}, {Epoch: epoch, Seq: 2}, {Epoch: epoch, Seq: 0}} {
		if err := b.Publish(r); !errors.Is(err, round.ErrStaleEpoch) {
			t.Errorf("round %d of epoch %d: %v, want ErrStaleEpoch", r.Seq, r.Epoch, err)
		}
	}
	if _, err := join(b.Segment(), epoch-1, 0); !errors.Is(err, round.ErrStaleEpoch) {
		t.Errorf("joining with an old epoch: %v, want ErrStaleEpoch", err)
	}
	// A frame of another epoch that somehow got into the segment.
	frame, err := round.AppendRound(nil, &round.Round{Epoch: epoch + 1, Seq: 1})
	if err != nil {
		t.Fatal(err)
	}
	copy(b.frame, frame)
	b.roundLen.Store(uint64(len(frame)))
	b.published.Store(1)
	if _, err := seatAt(t, b, 0).WaitRound(context.Background()); !errors.Is(err, round.ErrStaleEpoch) {
		t.Errorf("taking a frame of another epoch: %v, want ErrStaleEpoch", err)
	}
}

func TestADamagedFrameIsAFrameError(t *testing.T) {
	b := newBoard(t, 1)
	publish(t, b, 1)
	b.frame[20] ^= 4
	var bad *round.FrameError
	if _, err := seatAt(t, b, 0).WaitRound(context.Background()); !errors.As(err, &bad) {
		t.Fatalf("error is %v, want a FrameError", err)
	}
}

func TestAFrameThatDoesNotFitIsRefused(t *testing.T) {
	b, err := Create(Config{Epoch: epoch, Ranks: 1, RoundBytes: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	r := &round.Round{Epoch: epoch, Seq: 1, Entries: []round.Entry{{Kind: round.Prefill, Tokens: make([]int32, 100)}}}
	if err := b.Publish(r); err == nil || !strings.Contains(err.Error(), "length") {
		t.Fatalf("error is %v, want one about the length", err)
	}
}

func TestInjectedFaultsInAnAnswerAreNoticed(t *testing.T) {
	for line, want := range map[string]any{
		"at round 2 drop at rank.post rank=1":  new(*StallError),
		"at round 2 flip at rank.post rank=1":  new(*DivergedError),
		"at round 2 tear at rank.post rank=0":  new(*round.FrameError),
		"at round 2 stale at rank.post rank=0": &round.ErrStaleEpoch,
		"at round 2 fail at rank.post rank=2":  new(*FailedError),
	} {
		t.Run(line, func(t *testing.T) {
			script, err := faults.Parse(line, 3)
			if err != nil {
				t.Fatal(err)
			}
			b := newBoard(t, 3)
			end := start(t, b, func(s *Seat, r *round.Round) {
				if s.Faults == nil {
					s.Faults = faults.NewInjector(script, s.Rank())
				}
				s.Op(r.Seq)
				if err := s.Answer(r.Seq, s.Hash(), &round.Result{Timings: round.Timings{Total: 1 << 40}}); err != nil {
					s.Fail(r.Seq, err.Error())
				}
			})
			publish(t, b, 1)
			if _, err := b.Collect(unhurried); err != nil {
				t.Fatal(err)
			}
			publish(t, b, 2)
			patience := unhurried
			if strings.Contains(line, "drop") {
				patience.Stall = 100 * time.Millisecond // the answer never comes
			}
			_, err = b.Collect(patience)
			if target, ok := want.(*error); ok && !errors.Is(err, *target) || !ok && !errors.As(err, want) {
				t.Errorf("error is %v, want a %T", err, want)
			}
			end()
		})
	}
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	b := newBoard(t, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := seatAt(t, b, 0).WaitRound(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error is %v, want the deadline", err)
	}
}

// Without a preemption point in the wait the collector would never finish.
func TestTheCollectorRunsWhileARankWaits(t *testing.T) {
	b := newBoard(t, 1)
	var rank sync.WaitGroup
	seat := seatAt(t, b, 0)
	seat.Shared = false
	rank.Go(func() { _ = serve(seat, answer) })
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 20 {
			runtime.GC()
		}
	}()
	select {
	case <-done:
	case <-time.After(unhurried.Stall):
		t.Fatal("the collector is held up by a waiting rank")
	}
	publish(t, b, 1)
	if _, err := b.Collect(unhurried); err != nil {
		t.Fatal(err)
	}
	b.Drain()
	rank.Wait()
}

func TestARoundWithoutEntriesAllocatesLittle(t *testing.T) {
	b := newBoard(t, 1)
	s := seatAt(t, b, 0)
	seq := uint64(0)
	allocs := testing.AllocsPerRun(50, func() {
		seq++
		publish(t, b, seq)
		r, err := s.WaitRound(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		answer(s, r)
		if _, err := b.Collect(Patience{}); err != nil {
			t.Fatal(err)
		}
	})
	if allocs > 8 {
		t.Fatalf("%v allocations a round", allocs)
	}
}

func BenchmarkRoundOfOneThread(b *testing.B) {
	board := newBoard(b, 1)
	board.Shared = false
	var rank sync.WaitGroup
	seat := seatAt(b, board, 0)
	seat.Shared = false
	rank.Go(func() { _ = serve(seat, answer) })
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var seq uint64
	for b.Loop() {
		seq++
		if err := board.Publish(&round.Round{Epoch: epoch, Seq: seq}); err != nil {
			b.Fatal(err)
		}
		if _, err := board.Collect(Patience{}); err != nil {
			b.Fatal(err)
		}
	}
	board.Drain()
	rank.Wait()
}
