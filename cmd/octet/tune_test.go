package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/octet-run/octet/collectives"
	"github.com/octet-run/octet/collectives/topology"
	octetv1 "github.com/octet-run/octet/proto/octet/v1"
)

// Whoever runs a service may have no folder to keep a verdict in.
func TestRequireFastProbesWhereNothingCanBeKept(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", os.DevNull)
	out, errs, code := octet(t, "generate", "--require-fast", "--ranks", "2", "--max-tokens", "1", "x")
	if code != 0 {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
}

func TestAServerSaysItsTopologyAndTunes(t *testing.T) {
	server := startServed(t, filepath.Join(t.TempDir(), "s"))
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	told, err := server.client.Topology(ctx, &octetv1.TopologyRequest{Explain: true})
	if err != nil {
		t.Fatal(err)
	}
	if box, err := topology.Parse(told.GetBoxJson()); err != nil || box.Name != "this" || !strings.Contains(told.GetExplanation(), "4 ranks") {
		t.Errorf("box %+v, %v; explained as %q", box, err, told.GetExplanation())
	}
	tuned, err := server.client.Tune(ctx, &octetv1.TuneRequest{SizesBytes: []uint64{1 << 10}})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := collectives.ReadPlan(bytes.NewReader(tuned.GetPlanJson()))
	if err != nil || plan.Shape.Ranks != 4 || fmt.Sprintf("%016x", plan.Hash()) != tuned.GetHash() {
		t.Errorf("plan %+v, %v; hash %s", plan, err, tuned.GetHash())
	}
	_, err = server.client.Tune(ctx, &octetv1.TuneRequest{Budget: durationpb.New(50 * time.Millisecond)})
	if status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "not done in time") {
		t.Errorf("with a budget of nothing: %v", err)
	}
	for _, sizes := range [][]uint64{{3}, {8, 4}, {1 << 40}} {
		if _, err := server.client.Tune(ctx, &octetv1.TuneRequest{SizesBytes: sizes}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("sizes %v: %v", sizes, err)
		}
	}
}
