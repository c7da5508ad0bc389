package main

import (
	"os"
	"testing"
)

// Whoever runs a service may have no folder to keep a verdict in.
func TestRequireFastProbesWhereNothingCanBeKept(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", os.DevNull)
	out, errs, code := octet(t, "generate", "--require-fast", "--ranks", "2", "--max-tokens", "1", "x")
	if code != 0 {
		t.Fatalf("exit %d: %s%s", code, out, errs)
	}
}
