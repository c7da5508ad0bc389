package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/octet-run/octet/faults"
)

func TestASentenceContinuesWhenARankIsKilledInTheMiddle(t *testing.T) {
	if testing.Short() {
		t.Skip("starts two groups")
	}
	dir := t.TempDir()
	writeFile(t, dir, "kill.fault", "at round 5 kill rank=2\nat round 9 panic at rank.verify rank=1\nexpect continue\n")
	out, errs, code := octet(t, "fault", "run", filepath.Join(dir, "kill.fault"),
		"--ranks", "4", "--streams", "4", "--tokens", "80", "--slack", "0", "--json")
	if code != exitOK {
		t.Fatalf("exit code %d: %s\n%s", code, errs, out)
	}
	var report faultReport
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	if report.Strikes != 2 || report.Losses != 2 || report.Failed != 0 || report.Complete < 4 || report.RecoveryMS["death"]["serving"].N != 2 {
		t.Errorf("the report is %s", out)
	}
	for _, v := range report.Invariants {
		if !v.Held {
			t.Errorf("%s: %v", v.Name, v.Breaches)
		}
	}
}

func TestARunThatDoesNotEndAsExpectedFails(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a group")
	}
	dir := t.TempDir()
	writeFile(t, dir, "wrong.fault", "at round 4 delay rank=1 for=5ms\nexpect error GroupBroken\n")
	_, errs, code := octet(t, "fault", "run", filepath.Join(dir, "wrong.fault"), "--ranks", "2", "--streams", "1", "--tokens", "40", "--slack", "0")
	if code != exitFailed || !strings.Contains(errs, "line 2: expect error GroupBroken") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

func TestBadScriptsAreRefusedBeforeAnythingStarts(t *testing.T) {
	for text, want := range map[string]string{
		"\n  at round 4 explode":      "line 2, column 14",
		"kill rank=8":                 "line 1, column 6",
		"kill rank=1 rank=2":          "line 1, column 13",
		"nan at rank.step":            "only at rank.verify or collective.arrive",
		"":                            "has no fault",
		"# nothing\nexpect continue":  "has no fault",
		"kill rank=supervisor":        "line 1, column 6: this may end the supervisor",
		"exit at coordinator.round":   "line 1, column 1: this may end the supervisor",
		"panic at link.send":          "line 1, column 1: this may end the supervisor",
		"hang at board.collect":       "line 1, column 1: this may end the supervisor",
		"expect error Unfathomable":   "line 1, column 14",
		strings.Repeat("kill\n", 513): "line 513, column 1",
	} {
		dir := t.TempDir()
		writeFile(t, dir, "bad.fault", text)
		_, errs, code := octet(t, "fault", "run", filepath.Join(dir, "bad.fault"))
		if code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%q: exit code %d: %s", text, code, errs)
		}
	}
}

func TestTheScriptsThatComeWithTheProgramAreRight(t *testing.T) {
	paths, err := filepath.Glob("../../deploy/faults/*.fault")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	struck := map[faults.Point]bool{}
	for _, path := range paths {
		text, err := readInput(path)
		if err != nil {
			t.Fatal(err)
		}
		script, err := parseForRun(string(text), 8)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		for _, f := range script.Faults {
			struck[f.At] = true
		}
	}
	for _, p := range faults.Points() {
		if !struck[p] {
			t.Errorf("no script strikes at %s", p)
		}
	}
}
