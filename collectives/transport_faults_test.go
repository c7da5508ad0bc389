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
	cases := []struct {
		script string
		want   string // a part of some rank's error; none if it is empty
	}{
		{"at op 3 drop at collective.arrive rank=1", "rank 1 did not come to operation 2"},
		{"at op 3 stale at collective.arrive rank=1", "rank 1 did not come to operation 2"},
		{"at op 3 duplicate at collective.arrive rank=1", ""},
		{"at op 3 flip at collective.arrive rank=1", "sum of operation 2"},
		{"at op 3 nan at collective.arrive rank=1", "sum of operation 2"},
		{"at op 3 hang at collective.reduce rank=1 for=1s", "rank 1 did not come to operation"},
		{"at op 3 delay at collective.leave rank=1 for=10ms", ""},
		{"at op 3 fail at collective.leave rank=1", "rank 1 stop requested"},
	}
	for _, c := range cases {
		t.Run(c.script, func(t *testing.T) {
			script, err := faults.Parse(c.script, 2)
			if err != nil {
				t.Fatal(err)
			}
			duplicate := strings.Contains(c.script, "duplicate")
			all := errors.Join(faultyRun(t, script)...)
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

func faultyRun(t *testing.T, script *faults.Script) []error {
	t.Helper()
	g := newGroup(t, transport.Config{Ranks: 2, MaxRows: 1, MaxWidth: 64})
	return runOn(t, g, func(rank int) error {
		m, err := g.Attach(rank, transport.Polling{Timeout: time.Second})
		if err != nil {
			return err
		}
		c, err := New(transport.WithFaults(m, faults.NewInjector(script, rank)), Config{})
		if err != nil {
			return err
		}
		return reduceSizes(c, []int{64, 64, 64, 64, 64, 64})
	})
}
