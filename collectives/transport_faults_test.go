package collectives

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/octet-run/octet/collectives/transport"
	"github.com/octet-run/octet/faults"
)

// TestScriptedFaultsAreNoticed injects, at operation 3 of rank 1, what a script
// can do to an operation, and checks what the ranks make of it.
func TestScriptedFaultsAreNoticed(t *testing.T) {
	const ops = 4 // after the fault's, if nobody minds
	cases := []struct {
		script string
		want   string // a part of some rank's error; none if it is empty
		late   bool   // rank 0 waits in vain
	}{
		{"at op 3 drop at collective.arrive rank=1", "rank 1 did not come to operation 2", true},
		{"at op 3 stale at collective.arrive rank=1", "rank 1 did not come to operation 2", true},
		{"at op 3 duplicate at collective.arrive rank=1", "", false},
		{"at op 3 flip at collective.arrive rank=1", "sum of operation", false},
		{"at op 3 nan at collective.arrive rank=1", "sum of operation", false},
		{"at op 3 hang at collective.reduce rank=1 for=2s", "rank 1 did not come to operation", true},
		{"at op 3 delay at collective.leave rank=1 for=10ms", "", false},
		{"at op 3 fail at collective.leave rank=1", "rank 1 stop requested", false},
	}
	for _, c := range cases {
		t.Run(c.script, func(t *testing.T) {
			script, err := faults.Parse(c.script, 2)
			if err != nil {
				t.Fatal(err)
			}
			most := ops
			if c.want != "" {
				most = 1 << 16 // either rank sums, so rank 1 may be long in coming to its fault
			}
			duplicate := strings.Contains(c.script, "duplicate")
			all := errors.Join(faultyRun(t, script, c.late, most)...)
			switch {
			case duplicate:
				var arrival *transport.ArrivalError
				if all != nil && !errors.As(all, &arrival) {
					t.Errorf("got %v", all)
				}
			case c.want == "" && all != nil, c.want != "" && (all == nil || !strings.Contains(all.Error(), c.want)):
				t.Errorf("got %v, want %q", all, c.want)
			}
		})
	}
}

// faultyRun has two ranks reduce, most times or until one errs. If one is to come
// too late it is rank 1, and rank 0 alone gives up soon, once both are under way:
// however busy the machine is, it can blame nobody else.
func faultyRun(t *testing.T, script *faults.Script, late bool, most int) []error {
	t.Helper()
	g := newGroup(t, transport.Config{Ranks: 2, MaxRows: 1, MaxWidth: 64})
	return runOn(t, g, func(rank int) error {
		m, err := g.Attach(rank, transport.Polling{Timeout: limit})
		if err != nil {
			return err
		}
		c, err := New(transport.WithFaults(m, faults.NewInjector(script, rank)), Config{})
		if err != nil {
			return err
		}
		err = reduceSizes(c, []int{64, 64})
		if late && rank == 0 {
			m.SetTimeout(200 * time.Millisecond)
		}
		for op := 0; op < most && err == nil; op++ {
			err = reduceSizes(c, []int{64})
		}
		return err
	})
}
