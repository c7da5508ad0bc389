package board

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/octet-run/octet/actors/round"
)

// account is a rank's delays as a test has them: a part of the time, or stopped.
type account struct {
	begun   time.Time
	part    float64
	stopped bool
}

func (a account) Held(now time.Time) (time.Duration, bool) {
	return time.Duration(a.part * float64(now.Sub(a.begun))), a.stopped
}

// silent runs a round in which rank 1 of 3 is silent for a time, or until Collect
// gives up, with delays as given, and returns how long Collect waited.
func silent(t *testing.T, of time.Duration, a account) (time.Duration, error) {
	t.Helper()
	b := newBoard(t, 3)
	givenUp := make(chan struct{})
	end := start(t, b, func(s *Seat, r *round.Round) {
		if s.Rank() != 1 {
			s.BeginWait() // for rank 1, which is missing
			defer s.EndWait(0)
		}
		select {
		case <-time.After(of):
		case <-givenUp:
		}
		answer(s, r)
	})
	defer end()
	publish(t, b, 1)
	defer close(givenUp) // before end
	begun := time.Now()
	_, err := b.Collect(Patience{Stall: 200 * time.Millisecond, Watch: func(_ int, now time.Time) Delays {
		a.begun = now
		return a
	}})
	return time.Since(begun), err
}

func TestTimeInWhichARankWasKeptFromRunningIsNoSilence(t *testing.T) {
	var stall *StallError
	_, err := silent(t, time.Minute, account{})
	if !errors.As(err, &stall) || !slices.Equal(stall.Behind, []int{1}) {
		t.Fatalf("error is %v, want a stall with rank 1 behind", err)
	}
	// Half of the time held, twice the time waited.
	kept, err := silent(t, time.Minute, account{part: 0.5})
	if !errors.As(err, &stall) {
		t.Fatalf("error is %v, want a stall", err)
	}
	if kept < 350*time.Millisecond {
		t.Errorf("a starved rank was given %v, want twice the 200 ms of an idle one", kept)
	}
	if starved, err := silent(t, 600*time.Millisecond, account{part: 1}); err != nil {
		t.Errorf("a rank without a processor was given up after %v: %v", starved, err)
	}
}

func TestAStoppedRankHasNoExcuse(t *testing.T) {
	var stall *StallError
	waited, err := silent(t, time.Minute, account{part: 1, stopped: true})
	if !errors.As(err, &stall) {
		t.Fatalf("waited %v, then %v; want a stall before it goes on", waited, err)
	}
}
