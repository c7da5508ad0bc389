package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTopoDrawsExplainsAndItsJSONIsABox(t *testing.T) {
	out, errs, code := octet(t, "topo", "--box", "rtx-pro-6000x8-broadcom", "--explain")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	for _, want := range []string{"NUMA node 1", "PEX890xx", "GPU 7", "0>6", "not NVLink", "hierarchical", "not ring: is not exact"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	box, errs, code := octet(t, "topo", "--json")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	path := filepath.Join(t.TempDir(), "box.json")
	if err := os.WriteFile(path, []byte(box), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs, code = octet(t, "topo", "--box", path); code != 0 {
		t.Errorf("its own JSON, exit %d: %s", code, errs)
	}
	// A discovered box has no rates. What is assumed instead is said.
	if out, errs, code = octet(t, "simulate", "--box", path, "--model", "llama-3-8b", "--tokens", "1,4"); code != 0 || !strings.Contains(out, "gives no rates") {
		t.Errorf("simulate without rates, exit %d: %s%s", code, out, errs)
	}
}

func TestSimulateAnswersInJSONAndPictures(t *testing.T) {
	svg := filepath.Join(t.TempDir(), "out.svg")
	out, errs, code := octet(t, "simulate", "--box", "rtx-pro-6000x8", "--model", "kimi-k2.5", "--tokens", "1,4,16", "--svg", svg, "--json")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	var answer simulated
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		t.Fatal(err)
	}
	if len(answer.Rows) == 0 || answer.Best.TokensPerS <= 0 || len(answer.Hypotheses) != 4 || len(answer.Today) == 0 {
		t.Errorf("an answer with %d rows, best %+v, %d hypotheses", len(answer.Rows), answer.Best, len(answer.Hypotheses))
	}
	// The verify floor of Kimi-K2.5 in INT4 on eight GPUs of 1.8 TB/s.
	floors := map[int]float64{1: 3.5, 4: 5.9, 16: 14.0}
	for _, r := range answer.Rows {
		if want := floors[r.Tokens]; r.ComputeMS < want-0.06 || r.ComputeMS > want+0.06 {
			t.Errorf("%d tokens: floor %.2f ms, want %.1f", r.Tokens, r.ComputeMS, want)
		}
	}
	if picture, err := os.ReadFile(svg); err != nil || !strings.HasPrefix(string(picture), "<svg") {
		t.Errorf("no picture: %v", err)
	}
}

func TestMistakesInTopoAndSimulate(t *testing.T) {
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"simulate", "--box", "dgx"}, exitUsage, "h200x2"},
		{[]string{"simulate", "--model", "gpt-9"}, exitUsage, "kimi-k2.5"},
		{[]string{"simulate", "--tokens", "0"}, exitUsage, "1 to 512"},
		{[]string{"simulate", "--tokens", "many"}, exitUsage, "1,4,16"},
		{[]string{"simulate", "--acceptance", "2"}, exitUsage, "0 to 1"},
		{[]string{"simulate", "--ranks", "9"}, exitUsage, "8 GPUs"},
		{[]string{"topo", "--sysfs", "/nowhere"}, exitUsage, "not a sysfs tree"},
		{[]string{"topo", "--box", "h200x2", "--explain", "--ranks", "4"}, exitUsage, "2 GPUs"},
		{[]string{"topo", "--pids", "x"}, exitUsage, "12,13"},
	} {
		_, errs, code := octet(t, tc.args...)
		if code != tc.code || !strings.Contains(errs, tc.want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: exit %d, %q; want %d and %q in one line", tc.args, code, errs, tc.code, tc.want)
		}
	}
}
