package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/octet-run/octet/collectives/boxsim"
	"github.com/octet-run/octet/deploy/boxes"
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
	// What an explanation assumes does not get into the box.
	out, errs, code = octet(t, "topo", "--box", path, "--explain", "--json")
	if code != 0 || !strings.Contains(out, "gives no rates") || strings.Contains(out, `"fabric"`) {
		t.Errorf("explained without rates, exit %d: %s%s", code, out, errs)
	}
}

// Who asks topo and who asks simulate about a box that is not here must hear the same.
func TestTopoAndSimulateAgreeOnEveryCapturedBox(t *testing.T) {
	names := boxes.Names()
	if testing.Short() {
		names = []string{"h200x2", "this"}
	}
	for _, name := range names {
		explained, simulated := explainedBox(t, name), simulatedBox(t, name)
		if d := disagreement(explained, simulated); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// The control: what each of them once said on its own is noticed.
func TestADisagreementOfTopoAndSimulateIsNoticed(t *testing.T) {
	original, simulated := explainedBox(t, "h200x2"), simulatedBox(t, "h200x2")
	for what, change := range map[string]func(e *explanation){
		"another plan":      func(e *explanation) { e.Plan = "0" },
		"other islands":     func(e *explanation) { e.Islands = []int{8} },
		"another algorithm": func(e *explanation) { e.Choices[len(e.Choices)-1].Algorithm = "hierarchical" },
		"another size":      func(e *explanation) { e.Choices[0].MaxBytes = 11702 },
		"fewer sizes":       func(e *explanation) { e.Choices = e.Choices[1:] },
	} {
		e := original
		e.Choices = slices.Clone(e.Choices)
		change(&e)
		if disagreement(e, simulated) == "" {
			t.Errorf("%s passes for agreement", what)
		}
	}
}

func explainedBox(t *testing.T, name string) explanation {
	t.Helper()
	out, errs, code := octet(t, "topo", "--box", name, "--explain", "--json")
	if code != 0 {
		t.Fatalf("%s: exit %d: %s", name, code, errs)
	}
	var answer struct {
		Explained explanation `json:"explained"`
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		t.Fatal(err)
	}
	return answer.Explained
}

func simulatedBox(t *testing.T, name string) simulated {
	t.Helper()
	out, errs, code := octet(t, "simulate", "--box", name, "--model", "llama-3-8b", "--tokens", "1,7,64", "--json")
	if code != 0 {
		t.Fatalf("%s: exit %d: %s", name, code, errs)
	}
	var answer simulated
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

// disagreement is where an explanation and a simulation of one box differ, or nothing:
// the plans, and for each number of tokens the fastest row beside what was explained.
func disagreement(e explanation, s simulated) string {
	if e.Plan != s.Plan || !slices.Equal(e.Islands, s.Islands) || e.Ranks != s.Ranks || len(e.Choices) != len(s.Predicted) {
		return fmt.Sprintf("%d ranks, islands %v, plan %s of %d ranges; simulated %d ranks, islands %v, plan %s of %d ranges",
			e.Ranks, e.Islands, e.Plan, len(e.Choices), s.Ranks, s.Islands, s.Plan, len(s.Predicted))
	}
	for i, c := range s.Predicted {
		if x := e.Choices[i]; x.MaxBytes != c.MaxBytes || x.Fused != c.Fused || x.Algorithm != c.Algorithm || x.Path != c.Path {
			return fmt.Sprintf("explained %+v, simulated %+v", x, c)
		}
	}
	for _, r := range s.Rows {
		i := slices.IndexFunc(e.Choices, func(c choiceExplained) bool { return c.Fused && (c.MaxBytes == 0 || r.Bytes <= c.MaxBytes) })
		chosen := slices.IndexFunc(s.Rows, func(o boxsim.Row) bool {
			return o.Tokens == r.Tokens && o.Algorithm == e.Choices[i].Algorithm && o.Path == e.Choices[i].Path
		})
		if chosen < 0 || s.Rows[chosen].AllReduceUS > 1.03*r.AllReduceUS { // between the sizes that were compared
			return fmt.Sprintf("%d bytes: explained %+v, simulated %+v", r.Bytes, e.Choices[i], r)
		}
	}
	return ""
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
