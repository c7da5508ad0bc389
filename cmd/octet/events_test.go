package main

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/octet-run/octet/actors"
	octetv1 "github.com/octet-run/octet/proto/octet/v1"
)

func TestWhoWatchesAServerHearsOfItsRanks(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server")
	}
	s := startServed(t, filepath.Join(t.TempDir(), "s.sock"))
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	events, err := s.client.WatchEvents(ctx, &octetv1.WatchEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := events.Header(); err != nil { // it watches
		t.Fatal(err)
	}
	if _, err := s.client.RestartRank(ctx, &octetv1.RestartRankRequest{Rank: 2}); err != nil {
		t.Fatal(err)
	}
	due := map[string]bool{string(actors.RankLost): true, string(actors.RankStarted): true, string(actors.GroupServes): true}
	for len(due) > 0 {
		e, err := events.Recv()
		if err != nil {
			t.Fatalf("%v, and nothing was told of %v", err, due)
		}
		delete(due, e.GetKind())
	}
}
