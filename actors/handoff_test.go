package actors

import (
	"testing"

	"pgregory.net/rapid"
)

func TestTheHandoffIsReadAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := handoff{
			role:  rapid.SampledFrom([]string{"", roleNull, roleFloor}).Draw(t, "role"),
			ranks: rapid.IntRange(1, 64).Draw(t, "ranks"),
			epoch: rapid.Uint32Range(1, 1<<31-1).Draw(t, "epoch"),
			fresh: rapid.Bool().Draw(t, "fresh"),
			fds:   map[string]int{boardSegment: 4, linkSegment: 5, "slabs": 6},
		}
		h.rank = rapid.IntRange(0, h.ranks-1).Draw(t, "rank")
		got, err := parseHandoff(h.String())
		if err != nil || got.String() != h.String() {
			t.Fatalf("%q came back as %q, %v", h, got, err)
		}
	})
}

func TestABadHandoffIsRefused(t *testing.T) {
	for _, spec := range []string{
		"",
		"rank=0",
		"rank=0,ranks=1,epoch=1",
		"rank=1,ranks=1,epoch=1,board=4",
		"rank=0,ranks=1,epoch=0,board=4",
		"rank=0,ranks=1,epoch=1,board=3",
		"rank=0,ranks=1,epoch=1,board=4,link=4",
		"rank=0,ranks=1,epoch=1,board=four",
		"rank=0,ranks=1,epoch=1,board",
		"rank=-1,ranks=1,epoch=1,board=4",
	} {
		if _, err := parseHandoff(spec); err == nil {
			t.Errorf("%q was accepted", spec)
		}
	}
}

func FuzzParseHandoff(f *testing.F) {
	f.Add("rank=3,ranks=8,epoch=2,board=4,link=5,slabs=6")
	f.Fuzz(func(t *testing.T, spec string) {
		h, err := parseHandoff(spec)
		if err != nil {
			return
		}
		if again, err := parseHandoff(h.String()); err != nil || again.String() != h.String() {
			t.Fatalf("%q reads as %q and that as %q, %v", spec, h, again, err)
		}
	})
}
