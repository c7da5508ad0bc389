package collectives

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/octet-run/octet/collectives/transport"
	"github.com/octet-run/octet/internal/testgroup"
)

// lossRole is a rank process of a LossBench.
func lossRole(child testgroup.Child) error {
	var l RankLoss
	if err := json.Unmarshal([]byte(child.Args[0]), &l); err != nil {
		return err
	}
	g, err := transport.Open(child.Files[0])
	if err != nil {
		return err
	}
	return l.Run(g, child.Rank, os.Stdout)
}

func lossCommand(t *testing.T, ranks int) func(RankLoss) RankCommand {
	return func(l RankLoss) RankCommand {
		arg, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		return benchCommand("loss", ranks, string(arg))
	}
}

// TestADeadOrStoppedRankIsNamedByAllOthers strikes a rank in every phase of every
// algorithm. A dead one is noticed by its parent, which aborts the group; a stopped
// one by the deadline.
func TestADeadOrStoppedRankIsNamedByAllOthers(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	bench := LossBench{Ranks: 4, Deadline: 3 * time.Second, Command: lossCommand(t, 4)}
	for i, l := range bench.losses() {
		if testing.Short() && i%5 != 0 {
			continue // each takes seconds and four processes
		}
		l.Victim = i % bench.Ranks
		t.Run(fmt.Sprintf("%s/%s/stop %v", l.Algorithm, l.Moment, l.Stop), func(t *testing.T) {
			took, err := bench.strike(ctx, l)
			if err != nil {
				t.Fatal(err)
			}
			if len(took.survivor) != bench.Ranks-1 {
				t.Errorf("%d ranks lived, want %d", len(took.survivor), bench.Ranks-1)
			}
		})
	}
}

// The control: a survivor that names another rank, or nobody, fails the measurement.
func TestAReportThatNamesAnotherRankIsRefused(t *testing.T) {
	l := RankLoss{Victim: 1, Deadline: time.Second}
	good := []Loss{{Rank: 1, Reason: "died", At: 7}, {Rank: 1, At: 5}}
	if took, err := l.latencies(good); err != nil || len(took) != 1 || took[0] != 2 {
		t.Errorf("a good report gives %v, %v", took, err)
	}
	for _, bad := range []Loss{{Rank: 0, Reason: "died"}, {Rank: -1}, {Rank: 1, Reason: "timed out"}} {
		if _, err := l.latencies([]Loss{bad, good[1]}); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}
