package audit

import (
	"testing"
	"time"

	"github.com/octet-run/octet/faults"
)

var (
	origin = time.Unix(1_000_000, 0)
	want   = Output{Tokens: []int32{7, 8, 9}, Text: "abc"}
)

func at(d time.Duration) time.Time { return origin.Add(d) }

func stream(tell func(*Stream)) func(*Audit) {
	return func(a *Audit) {
		s := &Stream{Name: "stream 0"}
		tell(s)
		a.Stream(s, want)
	}
}

func whole(s *Stream) {
	s.Deliver(0, []int32{7, 8}, "ab")
	s.Deliver(2, []int32{9}, "c")
	s.End("", false)
}

func recoveries(script string, struck time.Duration, losses ...Loss) func(*Audit) {
	return func(a *Audit) {
		var strikes []Strike
		if script != "" {
			parsed, err := faults.Parse(script, 8)
			if err != nil {
				panic(err)
			}
			strikes = append(strikes, Strike{Time: at(struck), Fault: parsed.Faults[0], Rank: parsed.Faults[0].Rank})
		}
		a.Recoveries(strikes, losses, []time.Time{at(time.Hour)})
	}
}

func bounds(noticed, serving time.Duration) func(*Audit) {
	return func(a *Audit) {
		list := []Recovery{{Class: Death, Noticed: noticed, Serving: serving}}
		a.Bounds(TimesOf(list), map[Class]Bound{Death: {20 * time.Millisecond, time.Second}})
	}
}

func rest(change func(*Rest)) func(*Audit) {
	return func(a *Audit) {
		after := Rest{Goroutines: 3, Files: []string{"pipe", "pipe"}, Shared: map[string]bool{"theirs": true}}
		change(&after)
		a.Rest(Rest{Goroutines: 3, Files: []string{"pipe", "pipe"}, Shared: map[string]bool{"theirs": true}}, after)
	}
}

func growth(change func(*Level)) func(*Audit) {
	return func(a *Audit) {
		early := Level{Bytes: 100 << 20, Goroutines: 90, Files: 50, Segments: 24}
		late := early
		change(&late)
		a.Growth("the group", early, late)
	}
}

// Every check finds a violation, and lets pass what is right.
func TestViolationsAreCaught(t *testing.T) {
	cases := []struct {
		name   string
		tell   func(*Audit)
		breach Invariant // empty: none
	}{
		{"a whole stream", stream(whole), ""},
		{"another token", stream(func(s *Stream) { s.Deliver(0, []int32{7, 8, 1}, "abc"); s.End("", false) }), Identical},
		{"another text", stream(func(s *Stream) { s.Deliver(0, []int32{7, 8, 9}, "abd"); s.End("", false) }), Identical},
		{"a token too few", stream(func(s *Stream) { s.Deliver(0, []int32{7, 8}, "ab"); s.End("", false) }), Identical},
		{"a wrong token before an error", stream(func(s *Stream) { s.Deliver(0, []int32{6}, "x"); s.End("group broken", true) }), Identical},
		{"a typed error", stream(func(s *Stream) { s.Deliver(0, []int32{7}, "a"); s.End("group broken", true) }), ""},
		{"an error of no kind", stream(func(s *Stream) { s.End("oops", false) }), EndsOnce},
		{"no end", stream(func(s *Stream) { s.Deliver(0, []int32{7, 8, 9}, "abc") }), EndsOnce},
		{"two ends", stream(func(s *Stream) { whole(s); s.End("", false) }), EndsOnce},
		{"a token twice", stream(func(s *Stream) {
			s.Deliver(0, []int32{7, 8}, "ab")
			s.Deliver(1, []int32{8, 9}, "bc")
			s.End("", false)
		}), NoLoss},
		{"a token lost", stream(func(s *Stream) { s.Deliver(0, []int32{7}, "a"); s.Deliver(2, []int32{9}, "c"); s.End("", false) }), NoLoss},
		{"a token after the end", stream(func(s *Stream) { whole(s); s.Deliver(3, []int32{1}, "") }), NoLoss},
		{"a loss with its fault", recoveries("kill rank=3", time.Second, Loss{Time: at(2 * time.Second), Epoch: 1, Rank: 3}), ""},
		{"a loss without a fault", recoveries("", 0, Loss{Time: at(2 * time.Second), Epoch: 1, Rank: 3}), Explained},
		{"a loss before its fault", recoveries("kill rank=3", 3*time.Second, Loss{Time: at(2 * time.Second), Epoch: 1}), Explained},
		{"a loss by a delay", recoveries("delay rank=3 for=1ms", time.Second, Loss{Time: at(2 * time.Second), Epoch: 1}), Explained},
		{"one fault, two losses", recoveries("kill rank=3", time.Second, Loss{Time: at(2 * time.Second)}, Loss{Time: at(3 * time.Second)}), Explained},
		{"the right answer", func(a *Audit) { a.Answer(1, 2, 2, 9, 9) }, ""},
		{"an answer of the last epoch", func(a *Audit) { a.Answer(2, 2, 1, 9, 9) }, Epochs},
		{"an answer of the last round", func(a *Audit) { a.Answer(2, 2, 2, 9, 8) }, Epochs},
		{"an epoch that comes back", func(a *Audit) { a.Answer(3, 2, 2, 9, 9) }, Epochs},
		{"in time", bounds(19*time.Millisecond, time.Second), ""},
		{"noticed late", bounds(21*time.Millisecond, time.Second), Bounds},
		{"served late", bounds(time.Millisecond, 2*time.Second), Bounds},
		{"nothing left", rest(func(*Rest) {}), ""},
		{"a goroutine left", rest(func(r *Rest) { r.Goroutines++ }), AtRest},
		{"a file left", rest(func(r *Rest) { r.Files = []string{"pipe", "pipe", "pipe"} }), AtRest},
		{"a process left", rest(func(r *Rest) { r.Children++ }), AtRest},
		{"a KV block left", rest(func(r *Rest) { r.Blocks++ }), AtRest},
		{"shared memory left", rest(func(r *Rest) { r.Shared["ours"] = true }), AtRest},
		{"levels that vary", growth(func(l *Level) { l.Bytes, l.Goroutines, l.Files, l.Segments = 130<<20, 105, 65, 28 }), ""},
		{"memory that grows", growth(func(l *Level) { l.Bytes = 200 << 20 }), AtRest},
		{"goroutines that grow", growth(func(l *Level) { l.Goroutines = 140 }), AtRest},
		{"files that grow", growth(func(l *Level) { l.Files = 75 }), AtRest},
		{"shared memory that grows", growth(func(l *Level) { l.Segments = 50 }), AtRest},
		{"within the budget", func(a *Audit) { a.Restarts([]time.Time{at(0), at(time.Second), at(time.Hour)}, 2, time.Minute) }, ""},
		{"beyond the budget", func(a *Audit) { a.Restarts([]time.Time{at(0), at(1), at(2)}, 2, time.Minute) }, Budget},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			a := New()
			c.tell(a)
			caught := false
			for _, v := range a.Verdicts() {
				caught = caught || v.Name == c.breach && !v.Held
				if v.Name != c.breach && !v.Held {
					// One wrong token may break more than one invariant.
					t.Logf("%s: %v", v.Name, v.Breaches)
				}
			}
			if a.Held() != (c.breach == "") || caught != (c.breach != "") {
				t.Errorf("verdicts %+v, want a breach of %q", a.Verdicts(), c.breach)
			}
		})
	}
}

func TestALossIsPutDownToTheFaultThatStruckItsRank(t *testing.T) {
	script, err := faults.Parse("kill rank=3\nkill rank=5\nstop rank=1 for=1s", 8)
	if err != nil {
		t.Fatal(err)
	}
	var strikes []Strike
	for i, f := range script.Faults {
		strikes = append(strikes, Strike{Time: at(time.Duration(i+1) * time.Millisecond), Fault: f, Rank: f.Rank})
	}
	a := New()
	list := a.Recoveries(strikes, []Loss{{Time: at(10 * time.Millisecond), Rank: 5}}, []time.Time{at(5 * time.Millisecond), at(40 * time.Millisecond)})
	if len(list) != 1 || list[0].Fault.Rank != 5 || list[0].Noticed != 8*time.Millisecond || list[0].Serving != 38*time.Millisecond {
		t.Errorf("recoveries are %+v", list)
	}
}

func TestPercentilesAreNearestRanks(t *testing.T) {
	var times []time.Duration
	for i := range 100 {
		times = append(times, time.Duration(100-i))
	}
	if p := PercentilesOf(times); p != (Percentiles{100, 50, 99}) {
		t.Errorf("percentiles are %+v", p)
	}
	if p := PercentilesOf([]time.Duration{4}); p != (Percentiles{1, 4, 4}) {
		t.Errorf("percentiles of one are %+v", p)
	}
}
