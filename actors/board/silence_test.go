package board

import (
	"slices"
	"testing"
	"time"
)

// account is a rank's delays as a test has them: a part of the time, or stopped.
type account struct {
	begun   time.Time
	part    float64
	turns   uint64
	stopped bool
}

func (a account) Held(now time.Time) (time.Duration, uint64, bool) {
	return time.Duration(a.part * float64(now.Sub(a.begun))), a.turns, a.stopped
}

const stall = 200 * time.Millisecond

// silent asks as Collect does, on a clock of its own, whether the ranks of a round
// have been silent for too long, while ranks 0 and 2 wait for rank 1, which lives
// as life says. It returns when they have, and who is to blame; or a minute.
func silent(t *testing.T, a account, life func(*Seat)) (time.Duration, []int) {
	t.Helper()
	b := newBoard(t, 3)
	publish(t, b, 1)
	seatAt(t, b, 0).BeginWait()
	seatAt(t, b, 2).BeginWait()
	missing := seatAt(t, b, 1)
	begun := time.Unix(0, 0)
	w := silence{since: begun}
	p := Patience{Stall: stall, Watch: func(rank int, now time.Time) Delays {
		if rank != 1 {
			t.Errorf("rank %d is watched, want rank 1", rank)
		}
		a.begun = now
		return a
	}}
	now := begun
	for ; now.Sub(begun) < time.Minute; now = now.Add(collectSlice) {
		life(missing)
		if w.over(b, 1, &p, now) {
			return now.Sub(begun), b.stall(1, stall, false).Behind
		}
	}
	return now.Sub(begun), nil
}

func dead(*Seat) {}

func TestTimeInWhichARankWasKeptFromRunningIsNoSilence(t *testing.T) {
	const lookedAt = lookEvery + collectSlice // how late a look may be
	for name, c := range map[string]struct {
		account
		least time.Duration
	}{
		"idle": {account{}, stall},
		// The watch begins after a quarter of the stall: the rest takes twice as long.
		"without a processor half of the time": {account{part: 0.5}, stall/watchPart + 2*(stall-stall/watchPart)},
		"without a processor":                  {account{part: 1}, ExcuseLimit + stall},
		"stopped":                              {account{part: 1, stopped: true}, stall},
	} {
		waited, behind := silent(t, c.account, dead)
		if waited < c.least || waited > c.least+lookedAt || !slices.Equal(behind, []int{1}) {
			t.Errorf("%s: given up after %v with %v behind, want %v and rank 1", name, waited, behind, c.least)
		}
	}
}

func TestAWaitingRankThatHadItsTurnsHasNoExcuse(t *testing.T) {
	named := func(missing *Seat) { missing.WaitsFor(1) } // for itself: its flag was lost
	if waited, _ := silent(t, account{part: 1}, named); waited < ExcuseLimit {
		t.Errorf("a rank that never ran was given up after %v", waited)
	}
	if waited, _ := silent(t, account{part: 1, turns: fewTurns}, named); waited > 2*stall {
		t.Errorf("a rank that ran and saw nobody come was waited for, %v", waited)
	}
}

func TestARankThatShowsProgressIsNotSilent(t *testing.T) {
	if waited, _ := silent(t, account{}, (*Seat).Beat); waited < time.Minute {
		t.Errorf("a rank that beats was given up after %v", waited)
	}
}

func TestTimeThatThisSideDidNotSeeIsNoSilence(t *testing.T) {
	b, begin := newBoard(t, 2), time.Now()
	publish(t, b, 1)
	at := func(d time.Duration) time.Time { return begin.Add(d) }
	p := &Patience{Stall: 250 * time.Millisecond}
	w := silence{since: begin, seen: begin}
	w.moved(b, 1) // notes where the ranks are
	for _, look := range []struct {
		at   time.Duration
		gap  time.Duration
		over bool
	}{
		{90 * time.Millisecond, 0, false},
		{time.Minute, time.Minute - 190*time.Millisecond, false}, // the machine stood still
		{time.Minute + 50*time.Millisecond, 0, false},
		{time.Minute + 70*time.Millisecond, 0, true},
	} {
		if gap := w.skip(at(look.at)); gap != look.gap {
			t.Errorf("at %v %v are not counted, want %v", look.at, gap, look.gap)
		}
		if over := w.over(b, 1, p, at(look.at)); over != look.over {
			t.Errorf("at %v the silence is over patience: %v, want %v", look.at, over, look.over)
		}
	}
}
