package actors

import (
	"testing"
	"time"

	"github.com/octet-run/octet/actors/round"
)

func TestARoundMayBeSilentForTenSlowRoundsOfItsSize(t *testing.T) {
	const ms = time.Millisecond
	c := &Config{Stall: 250 * ms}
	var times roundTimes
	if got := times.stall(c, 8); got != 5*time.Second {
		t.Errorf("the first round of all may be silent for %v, want 5s", got)
	}
	many := func(n, rows int, silent time.Duration) {
		for range n {
			times.add(rows, 10*silent, silent)
		}
	}
	many(200, 8, 4*ms)
	many(200, 100, 60*ms)
	for _, c2 := range []struct {
		rows int
		want time.Duration
	}{
		{8, 250 * ms},         // 40 ms are less
		{15, 250 * ms},        // the same size
		{16, 250 * ms},        // foretold: 10 x 2 x 5 ms
		{64, 600 * ms},        // measured, as 100
		{512, 8 * 600 * ms},   // foretold from 64
		{1, 5 * time.Second},  // nothing smaller is known
		{5000, 64 * 600 * ms}, // foretold
	} {
		if got := times.stall(c, c2.rows); got != c2.want {
			t.Errorf("a round of %d rows may be silent for %v, want %v", c2.rows, got, c2.want)
		}
	}
	many(1, 8, 9*time.Second) // one of 128 is none of the slow ones
	many(refreshEvery, 8, 4*ms)
	if got := times.stall(c, 8); got != 250*ms {
		t.Errorf("after one odd round the next may be silent for %v, want 250ms", got)
	}
	if got := times.slowest(); got != 60*ms {
		t.Errorf("slow rounds are silent for %v, want 60ms", got)
	}
}

func TestRowsAreTokensOrNodes(t *testing.T) {
	r := &round.Round{Entries: []round.Entry{
		{Kind: round.Prefill, Tokens: make([]int32, 30)},
		{Kind: round.Decode, Tokens: make([]int32, 1), Draft: round.Draft{Nodes: 6}},
		{Kind: round.Release},
	}}
	if got := rowsOf(r); got != 36 {
		t.Errorf("%d rows, want 36", got)
	}
}
