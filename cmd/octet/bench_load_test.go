package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/octet-run/octet/model/synth"
)

// TestLoadingReadsOnceAndKeepsItsShare loads a checkpoint that is not in the page
// cache on four ranks, with a limit and without: no page comes from storage twice,
// and a rank's own memory is what it copied and little else.
func TestLoadingReadsOnceAndKeepsItsShare(t *testing.T) {
	if testing.Short() {
		t.Skip("writes and loads 64 MiB")
	}
	dir := filepath.Join(t.TempDir(), "model")
	if err := synth.Write(dir, synth.Config{Layers: 2, Hidden: 1024, Intermediate: 2816, Heads: 8, KVHeads: 4}, nil); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []string{"", "1MiB"} {
		args := []string{"bench", "load", "--model", dir, "--ranks", "4", "--context", "256", "--batch", "1", "--cold", "--loads", "2", "--json"}
		if limit != "" {
			args = append(args, "--load-limit", limit)
		}
		out, errs, code := octet(t, args...)
		var b loadBench
		if err := json.Unmarshal([]byte(out), &b); code != exitOK || err != nil {
			t.Fatalf("bench load: exit code %d, %v: %s%s", code, err, out, errs)
		}
		// A few pages more are the processes' own: the program's, the libraries'.
		if most := b.FilePages + b.FilePages/8; b.PagesRead > most {
			t.Errorf("limit %q: %d pages were read from storage, the file has %d", limit, b.PagesRead, b.FilePages)
		}
		const own = 64 << 20
		var sum int64
		for _, r := range b.Rows {
			sum += r.BytesMapped + r.BytesCopied
			if r.BytesCopied == 0 || r.BytesMapped == 0 || r.RSSAnonServed > r.BytesCopied+own {
				t.Errorf("limit %q: rank %d copied %d bytes, mapped %d, and has %d of its own",
					limit, r.Rank, r.BytesCopied, r.BytesMapped, r.RSSAnonServed)
			}
		}
		if len(b.Loads) != 2 {
			t.Errorf("limit %q: %d loads were timed, want 2", limit, len(b.Loads))
		}
		if len(b.Rows) != 4 || sum != b.Bytes || b.Bytes < b.FileBytes*9/10 {
			t.Errorf("limit %q: %d ranks with %d bytes, in all %d of a file of %d", limit, len(b.Rows), sum, b.Bytes, b.FileBytes)
		}
	}
}

func TestLoadLimitIsASize(t *testing.T) {
	_, errs, code := octet(t, "generate", "--load-limit", "plenty", "x")
	if code != exitUsage || !strings.Contains(errs, "plenty") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}
