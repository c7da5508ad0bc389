package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/octet-run/octet/actors"
)

func TestTheLoadBarAddsUpRanksAndVanishes(t *testing.T) {
	var out bytes.Buffer
	bar := newLoadBar(nil)
	bar.w = &out
	loading := func(rank int, done uint64) actors.Event {
		return actors.Event{Kind: actors.RankLoading, Rank: rank, Done: done, Total: 2 << 30}
	}
	bar.event(loading(0, 1<<30))
	bar.event(loading(1, 1<<30))
	bar.event(loading(1, 1<<30)) // nothing new
	want := "\rloading  50% [===============               ] 1.00 of 2.00 GiB" +
		"\rloading  50% [===============               ] 2.00 of 4.00 GiB"
	if out.String() != want {
		t.Fatalf("drawn: %q\nwant:  %q", out.String(), want)
	}
	out.Reset()
	bar.finish()
	bar.event(loading(0, 2<<30)) // of a group that forms again
	width := len(barLine(2<<30, 4<<30))
	if want := "\r" + strings.Repeat(" ", width) + "\r"; out.String() != want {
		t.Fatalf("at the end: %q, want %q", out.String(), want)
	}
}

func TestTheLoadBarStaysInItsBounds(t *testing.T) {
	width := len(barLine(0, 3<<30))
	for _, done := range []int64{0, 1, 1 << 30, 3 << 30, 4 << 30} {
		if line := barLine(done, 3<<30); len(line) != width {
			t.Errorf("%d bytes: %q is not %d wide", done, line, width)
		}
	}
	if line := barLine(0, 0); !strings.Contains(line, "100%") {
		t.Errorf("nothing to load: %q", line)
	}
}
