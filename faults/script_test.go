package faults

import (
	"errors"
	"testing"
	"time"
)

func TestScriptsParse(t *testing.T) {
	const text = `
# kill one in mid-sentence
at round 40 kill rank=3
after 2s stop rank=1 for=300ms
at op 73 drop at collective.arrive rank=5
at op 10 flip rank=2
at hit 3 delay at rank.verify rank=any for=50ms every=2
kill rank=supervisor
expect continue
expect error GroupBroken
`
	script, err := Parse(text, 8)
	if err != nil {
		t.Fatal(err)
	}
	want := []Fault{
		{Line: 3, When: Trigger{Round: 40}, Do: Kill, Rank: 3},
		{Line: 4, When: Trigger{After: 2 * time.Second}, Do: Stop, Rank: 1, For: 300 * time.Millisecond},
		{Line: 5, When: Trigger{Op: 73}, Do: Drop, At: CollectiveArrive, Rank: 5},
		{Line: 6, When: Trigger{Op: 10}, Do: Flip, At: CollectiveArrive, Rank: 2},
		{Line: 7, When: Trigger{Hit: 3}, Do: Delay, At: RankVerify, Rank: Any, For: 50 * time.Millisecond, Every: 2},
		{Line: 8, Do: Kill, Rank: Supervisor},
	}
	if len(script.Faults) != len(want) {
		t.Fatalf("%d faults, want %d", len(script.Faults), len(want))
	}
	for i, f := range script.Faults {
		if f.Column = 0; f != want[i] {
			t.Errorf("fault %d is %+v, want %+v", i, f, want[i])
		}
	}
	if len(script.Expectations) != 2 || !script.Expectations[0].Continue || script.Expectations[1].Error != "GroupBroken" {
		t.Errorf("expectations are %+v", script.Expectations)
	}
}

func TestBadScriptsAreRefusedWithLineAndColumn(t *testing.T) {
	cases := []struct {
		text         string
		line, column int
	}{
		{"explode rank=1", 1, 1},
		{"\n  at round 4 explode", 2, 14},
		{"kill rank=8", 1, 6},
		{"kill rank=-1", 1, 6},
		{"at round zero kill rank=1", 1, 10},
		{"at rounds 4 kill rank=1", 1, 4},
		{"after soon kill rank=1", 1, 7},
		{"fail at rank.nowhere", 1, 9},
		{"kill at rank.step", 1, 9},
		{"nan at link.send", 1, 8},
		{"stop rank=1", 1, 12},
		{"kill rank=1 quickly", 1, 13},
		{"kill rank=1 rank=2", 1, 13},
		{"nan at rank.verify at collective.arrive", 1, 20},
		{"kill speed=1", 1, 6},
		{"expect miracles", 1, 7},
		{"expect continue now", 1, 17},
		{"at round", 1, 9},
		{"at", 1, 3},
		{"panic rank=supervisor", 1, 22},
		{"at op 3 kill rank=1", 1, 20},
		{"after 2s delay for=1ms every=3", 1, 31},
		{"kill rank=+1", 1, 6},
		{"kill rank=1 for=1s", 1, 19},
		{"fail at coordinator.commit rank=3", 1, 28},
	}
	for _, c := range cases {
		_, err := Parse(c.text, 8)
		var syntax *SyntaxError
		if !errors.As(err, &syntax) {
			t.Errorf("%q: error %v, want a syntax error", c.text, err)
			continue
		}
		if syntax.Line != c.line || syntax.Column != c.column {
			t.Errorf("%q: %v, want line %d column %d", c.text, err, c.line, c.column)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("at round 40 kill rank=3\nexpect continue")
	f.Add("at hit 3 delay at rank.verify rank=any for=50ms every=2 # slow")
	f.Fuzz(func(t *testing.T, text string) {
		script, err := Parse(text, 8)
		var syntax *SyntaxError
		if err != nil && !errors.As(err, &syntax) {
			t.Fatalf("error of type %T", err)
		}
		if err == nil {
			for _, f := range script.Faults {
				if !f.Do.External() && f.At == "" {
					t.Fatalf("fault %+v strikes nowhere", f)
				}
			}
		}
	})
}

func TestAFaultWrittenAndReadAgainIsTheSame(t *testing.T) {
	script := parse(t, `at round 40 kill rank=3
after 2s stop rank=1 for=300ms
at op 73 drop at collective.arrive rank=5
at hit 3 delay at rank.verify for=50ms every=2
kill rank=supervisor
spin`)
	for _, f := range script.Faults {
		again := parse(t, f.String()).Faults[0]
		f.Line = 1
		if again.Column, f.Column = 0, 0; again != f {
			t.Errorf("%q reads as %+v, was %+v", f.String(), again, f)
		}
	}
}
