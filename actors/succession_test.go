package actors

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/octet-run/octet/actors/process"
	"github.com/octet-run/octet/internal/shm"
)

// successions is a connected pair: the supervisor's end and the rank's.
func successions(t *testing.T) (supervisor, rank *succession) {
	t.Helper()
	ours, file, err := newSuccession()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := joinSuccession(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ours.close()
		theirs.close()
	})
	return ours, theirs
}

func segment(t *testing.T, word uint32) *shm.Segment {
	t.Helper()
	s, err := shm.Create("octet-test", 4096)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	s.Word(0).Store(word)
	return s
}

func TestASuccessionHandsOverFilesByName(t *testing.T) {
	before := openFiles(t)
	t.Run("pair", func(t *testing.T) {
		supervisor, rank := successions(t)
		segments := map[string]*shm.Segment{boardSegment: segment(t, 1), linkSegment: segment(t, 2), "slabs": segment(t, 3), "zones": segment(t, 4)}
		h, files := handoff{rank: 3, ranks: 8, epoch: 9}.withSegments(segments)
		if err := supervisor.bequeath(h, files); err != nil {
			t.Fatal(err)
		}
		got, received, err := rank.inherit(t.Context())
		if err != nil || got.rank != 3 || got.ranks != 8 || got.epoch != 9 || len(received) != len(segments) {
			t.Fatalf("got %q with %d files, %v", got, len(received), err)
		}
		for name, file := range received {
			s, err := shm.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			if want := segments[name].Word(0).Load(); s.Word(0).Load() != want {
				t.Errorf("%q is segment %d, want %d", name, s.Word(0).Load(), want)
			}
			_ = s.Close()
		}
		if err := rank.leave(9); err != nil {
			t.Fatal(err)
		}
		if epoch, err := supervisor.left(); err != nil || epoch != 9 {
			t.Errorf("left epoch %d, %v, want 9", epoch, err)
		}
	})
	settled(t, before)
}

func TestASuccessionEndsWithTheOtherSideOrTheContext(t *testing.T) {
	_, waiting := successions(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, _, err := waiting.inherit(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the context: %v", err)
	}
	supervisor, rank := successions(t)
	supervisor.close()
	if _, _, err := rank.inherit(t.Context()); err == nil {
		t.Error("a closed supervisor still hands over")
	}
	supervisor, rank = successions(t)
	rank.close()
	if _, err := supervisor.left(); !errors.Is(err, io.EOF) {
		t.Errorf("after the rank's end: %v", err)
	}
	if err := supervisor.bequeath(handoff{ranks: 1, epoch: 2}.withSegments(map[string]*shm.Segment{boardSegment: segment(t, 1)})); err == nil {
		t.Error("a handoff to nobody went well")
	}
}

func TestABadHandoffLeavesNoFilesBehind(t *testing.T) {
	before := openFiles(t)
	t.Run("pair", func(t *testing.T) {
		supervisor, rank := successions(t)
		s := segment(t, 1)
		short := handoff{ranks: 1, epoch: 2, fds: map[string]int{boardSegment: process.DeathPipeFD + 1, linkSegment: process.DeathPipeFD + 2}}
		for name, h := range map[string]handoff{"a file is missing": short, "no board": {ranks: 1, epoch: 2}} {
			if err := supervisor.bequeath(h, []*os.File{s.File()}); err != nil {
				t.Fatal(err)
			}
			if _, _, err := rank.inherit(t.Context()); err == nil {
				t.Errorf("%s: no error", name)
			}
		}
	})
	settled(t, before)
}

func TestOnlyALaterEpochOfTheSameRankSucceeds(t *testing.T) {
	in := &Inherited{Rank: 2, Ranks: 4, Epoch: 7}
	for h, ok := range map[*handoff]bool{
		{rank: 2, ranks: 4, epoch: 8}: true,
		{rank: 2, ranks: 4, epoch: 9}: true,
		{rank: 2, ranks: 4, epoch: 7}: false,
		{rank: 2, ranks: 4, epoch: 6}: false,
		{rank: 1, ranks: 4, epoch: 8}: false,
		{rank: 2, ranks: 5, epoch: 8}: false,
	} {
		if err := successor(*h, in); (err == nil) != ok || err != nil && !errors.Is(err, ErrStaleEpoch) {
			t.Errorf("%q: %v", h, err)
		}
	}
}
