package collectives

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/octet-run/octet/collectives/transport"
	"github.com/octet-run/octet/internal/testgroup"
)

// tortureRole is a rank process of a Torture.
func tortureRole(child testgroup.Child) error {
	var r RankTorture
	if err := json.Unmarshal([]byte(child.Args[0]), &r); err != nil {
		return err
	}
	g, err := transport.Open(child.Files[0])
	if err != nil {
		return err
	}
	defer g.Close()
	return r.Run(g, child.Rank)
}

func torture(t *testing.T, seed uint64, operations int) Torture {
	return Torture{Seed: seed, Operations: operations, Command: func(r RankTorture, ranks int) RankCommand {
		arg, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return benchCommand("torture", ranks, string(arg))
	}}
}

// TestRandomOperationsWithStoppedRanks is a short torture, with 8 ranks and with
// fewer; octet bench torture is the long one.
func TestRandomOperationsWithStoppedRanks(t *testing.T) {
	operations := 1000
	if testing.Short() {
		operations = 200
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	for seed := range uint64(4) {
		if err := torture(t, seed, operations).Run(ctx); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

func TestTortureCatchesATransportThatBreaksItsWord(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	for _, control := range Controls() {
		err := torture(t, 2, 0).Caught(ctx, control)
		if err == nil || !strings.Contains(err.Error(), "all-reduce ") {
			t.Errorf("%s: %v", control, err)
			continue
		}
		t.Logf("%s: %v", control, err)
	}
}
