package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// asOctet makes the test binary, and the ranks it starts, run the program.
const asOctet = "OCTET_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asOctet) != "" {
		os.Unsetenv("OCTET_CONFIG")
		main()
		os.Exit(0)
	}
	os.Exit(runTests(m))
}

// runTests keeps what the program writes to its user's cache out of the real one.
func runTests(m *testing.M) int {
	cache, err := os.MkdirTemp("", "octet-test-cache-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(cache)
	os.Setenv("XDG_CACHE_HOME", cache)
	return m.Run()
}

// limit is how long anything may take on a machine that is busy with other things.
const limit = 2 * time.Minute

const pair = "../../testdata/fixtures/eagle3-llama-pair"

func program(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), asOctet+"=1")
	cmd.WaitDelay = limit
	return cmd
}

// octet runs the program to its end.
func octet(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*limit)
	defer cancel()
	cmd := program(ctx, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("octet %s: %v", strings.Join(args, " "), err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func TestMistakesAreOneSentenceAndTheRightExitCode(t *testing.T) {
	broken := t.TempDir()
	writeFile(t, broken, "config.json", `{"architectures":["GPT9"],"model_type":"gpt9"}`)
	truncated := copyModel(t, filepath.Join(pair, "target"))
	if err := os.Truncate(filepath.Join(truncated, "model.safetensors"), 1<<20); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"no such command", []string{"explode"}, exitUsage, "unknown command"},
		{"no such flag", []string{"generate", "--speed", "9"}, exitUsage, "unknown flag"},
		{"a word for a number", []string{"generate", "--ranks", "abc", "x"}, exitUsage, `--ranks: "abc" is not a whole number`},
		{"more threads than any node has", []string{"generate", "--threads", "100000", "x"}, exitUsage, "at most 256"},
		{"more cache than there is memory", []string{"generate", "--kv-tokens", "999999999999", "x"}, exitNotReady, "there is memory for"},
		{"too many arguments", []string{"generate", "a", "b"}, exitUsage, "write octet generate [PROMPT]"},
		{"too many ranks", []string{"generate", "--ranks", "9", "x"}, exitUsage, "1 to 8 ranks"},
		{"no ranks", []string{"generate", "--ranks", "0", "x"}, exitUsage, "1 to 8 ranks"},
		{"more sequences than rows", []string{"generate", "--batch", "257", "x"}, exitUsage, "1 to 256 sequences"},
		{"empty prompt", []string{"generate", ""}, exitUsage, "prompt is empty"},
		{"two prompts", []string{"generate", "--prompt-ids", "1", "x"}, exitUsage, "once"},
		{"ids that are none", []string{"generate", "--prompt-ids", "1,x"}, exitUsage, `"x" is not a token id`},
		{"id outside the vocabulary", []string{"generate", "--model", pair + "/target", "--ranks", "1", "--prompt-ids", "1,2048"}, exitUsage, "2048"},
		{"negative id", []string{"generate", "--model", pair + "/target", "--ranks", "1", "--prompt-ids=-1"}, exitUsage, "-1"},
		{"longer than the context", []string{"generate", "--model", pair + "/target", "--ranks", "1", "--context", "8", "--prompt-ids", "1,2,3,4,5,6,7,8,9"}, exitUsage, "context"},
		{"context beyond the model", []string{"generate", "--model", pair + "/target", "--context", "4096", "x"}, exitUsage, "2048"},
		{"unknown speculation", []string{"generate", "--speculate", "magic", "x"}, exitUsage, "magic"},
		{"a tree that cannot be", []string{"generate", "--tree", "topk=1,steps=3,tokens=9", "x"}, exitUsage, "--tree"},
		{"eagle3 without a drafter", []string{"generate", "--model", pair + "/target", "--speculate", "eagle3", "x"}, exitUsage, "--draft"},
		{"no such folder", []string{"generate", "--model", "/nowhere", "x"}, exitFailed, "/nowhere"},
		{"unknown architecture", []string{"generate", "--model", broken, "x"}, exitFailed, "GPT9"},
		{"truncated weights", []string{"generate", "--model", truncated, "x"}, exitFailed, "model.safetensors"},
		{"a drafter that is none", []string{"generate", "--model", pair + "/target", "--draft", pair + "/target", "x"}, exitFailed, "architectures"},
		{"missing prompt file", []string{"generate", "--prompt-file", "/nowhere"}, exitUsage, "/nowhere"},
		{"negative temperature", []string{"generate", "--ranks", "1", "--temperature=-1", "x"}, exitUsage, "temperature must be a finite number of at least 0"},
		{"repetition penalty of zero", []string{"generate", "--repetition-penalty", "0", "x"}, exitUsage, "repetition"},
		{"no server", []string{"status", "--socket", "/nowhere.sock"}, exitNotReady, "octet serve"},
		{"no server to stop", []string{"stop", "--socket", "/nowhere.sock"}, exitNotReady, "octet serve"},
		{"missing configuration", []string{"generate", "--config", "/nowhere.yaml", "x"}, exitUsage, "/nowhere.yaml"},
		{"cuda on a CPU build", []string{"generate", "--backend", "cuda", "x"}, exitNotReady, "cuda"},
		{"a token log that cannot be", []string{"serve", "--socket", broken + "/s", "--http", "off", "--token-log", "/nowhere/log"}, exitFailed, "/nowhere/log"},
		{"a rank by hand", []string{"rank"}, exitUsage, "octet serve"},
		{"detokenize nothing", []string{"detokenize"}, exitUsage, "--ids"},
		{"detokenize an empty list", []string{"detokenize", "--ids", "[]"}, exitUsage, "--ids"},
		{"no such algorithm", []string{"bench", "allreduce", "--algorithms", "foo"}, exitUsage, "central, one-shot"},
		{"a rank below none", []string{"restart-rank", "-1"}, exitUsage, `"-1" is not the number of a rank`},
		{"more ranks than a round has", []string{"bench", "round", "--ranks", "99"}, exitUsage, "1 to 64 ranks"},
		{"rows without width", []string{"bench", "allreduce", "--hidden", "0", "--fused"}, exitUsage, "--hidden"},
		{"choices below none", []string{"generate", "--top-k=-5", "x"}, exitUsage, "--top-k"},
		{"a file that is no box", []string{"simulate", "--box", filepath.Join(broken, "config.json")}, exitUsage, "config.json: box version is 0"},
		{"no such box", []string{"topo", "--box", "mine"}, exitUsage, `no box is called "mine"`},
		{"ranks below none", []string{"simulate", "--ranks=-1"}, exitUsage, "1 to 8 ranks"},
		{"help for no command", []string{"help", "explode"}, exitUsage, "unknown command"},
		{"open to others without a token", []string{"serve", "--socket", broken + "/s", "--http", "0.0.0.0:0"}, exitNotReady, "OCTET_TOKEN"},
		{"an address without a port", []string{"serve", "--socket", broken + "/s", "--http", "127.0.0.1"}, exitUsage, "HOST:PORT"},
		{"a port that is none", []string{"serve", "--socket", broken + "/s", "--http", "127.0.0.1:99999"}, exitUsage, "99999"},
		{"a socket's path that is too long", []string{"serve", "--socket", broken + "/" + strings.Repeat("s", 100), "--http", "off"}, exitUsage, "choose a shorter one"},
		{"a socket in no folder", []string{"serve", "--socket", "/nowhere/s", "--http", "off"}, exitFailed, "listen on /nowhere/s: no such file"},
		{"patience below none", []string{"serve", "--grace=-1s"}, exitUsage, "--grace"},
		{"detokenize outside the vocabulary", []string{"detokenize", "--model", pair + "/target", "--ids", "99999"}, exitUsage, "99999"},
	} {
		t.Run(c.name, func(t *testing.T) {
			stdout, stderr, code := octet(t, c.args...)
			if code != c.code || !strings.Contains(stderr, c.want) {
				t.Errorf("exit code %d (want %d), error %q (want %q)", code, c.code, stderr, c.want)
			}
			if stdout != "" || strings.Count(strings.TrimSpace(stderr), "\n") > 0 || strings.Contains(stderr, "goroutine ") {
				t.Errorf("want one sentence on standard error alone, got %q and %q", stdout, stderr)
			}
		})
	}
}

func TestGenerateReportsTheRecordedContinuation(t *testing.T) {
	var record struct {
		Cases []struct {
			Prompt []int32 `json:"prompt_ids"`
			Greedy []int32 `json:"greedy_96"`
			Accept map[string]struct {
				Lengths []int `json:"accept_lengths"`
			} `json:"accept"`
		} `json:"cases"`
	}
	data, err := os.ReadFile(filepath.Join(pair, "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &record); err != nil {
		t.Fatal(err)
	}
	c := record.Cases[0]
	for _, mode := range []string{"off", "eagle3", "auto"} {
		stdout, stderr, code := octet(t, "generate", "--model", pair+"/target", "--draft", pair+"/draft", "--ranks", "3",
			"--speculate", mode, "--tree", "steps=5", "--prompt-ids", joinIDs(c.Prompt), "--max-tokens", "96", "--ignore-eos", "--json")
		var g generation
		if err := json.Unmarshal([]byte(stdout), &g); err != nil || code != 0 {
			t.Fatalf("%s: exit code %d, %q, %v", mode, code, stderr, err)
		}
		if joinIDs(g.TokenIDs) != joinIDs(c.Greedy) {
			t.Errorf("%s: tokens %v, recorded %v", mode, g.TokenIDs, c.Greedy)
		}
		if !strings.Contains(stdout, `"logprobs":[]`) {
			t.Errorf("%s: no list of log-probabilities in %s", mode, stdout)
		}
		if g.FinishReason != "length" || g.Ranks != 3 || g.Timings.TokensPerS <= 0 {
			t.Errorf("%s: report %+v", mode, g)
		}
		if mode != "eagle3" {
			continue
		}
		// The record's last round is not cut at the 96th token.
		want := c.Accept["chain_k5"].Lengths
		n := len(g.AcceptedPerRound) - 1
		if n < 1 || n >= len(want) || !equalInts(g.AcceptedPerRound[:n], want[:n]) {
			t.Errorf("accepted %v, recorded %v", g.AcceptedPerRound, want)
		}
	}
}

func equalInts(a, b []int) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return len(a) == len(b)
}

func TestSettingsComeFromFlagThenEnvironmentThenFile(t *testing.T) {
	dir := t.TempDir()
	file := writeFile(t, dir, "octet.yaml", "ranks: 3\nbatch: 5\nspeculate: off\n")
	t.Setenv("OCTET_BATCH", "6")
	stdout, stderr, code := octet(t, "config", "print", "serve", "--config", file, "--json")
	if code != 0 {
		t.Fatal(stderr)
	}
	var printed struct{ Settings []setting }
	if err := json.Unmarshal([]byte(stdout), &printed); err != nil {
		t.Fatal(err)
	}
	got := map[string]setting{}
	for _, s := range printed.Settings {
		got[s.Name] = s
	}
	for name, want := range map[string]setting{
		"ranks":     {"ranks", "3", "file " + file},
		"batch":     {"batch", "6", "environment OCTET_BATCH"},
		"speculate": {"speculate", "off", "file " + file},
		"kv-tokens": {"kv-tokens", "0", "default"},
	} {
		if got[name] != want {
			t.Errorf("%s is %+v, want %+v", name, got[name], want)
		}
	}
}

func TestTheTokenIsNotPrintedWithTheSettings(t *testing.T) {
	t.Setenv("OCTET_TOKEN", "s3cret")
	for _, args := range [][]string{{"config", "print"}, {"config", "print", "--json"}} {
		stdout, stderr, code := octet(t, args...)
		if code != exitOK || strings.Contains(stdout, "s3cret") || !strings.Contains(stdout, "environment OCTET_TOKEN") {
			t.Errorf("%v: exit code %d, %q and %q, want that there is a token, and not which", args, code, stdout, stderr)
		}
	}
}

func TestOutputThatIsLostIsAFailure(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	for _, args := range [][]string{
		{"topo"},
		{"config", "print"},
		{"config", "print", "--json"},
		{"generate", "--help"},
		{"generate", "--ranks", "1", "--max-tokens", "4", "func main() {"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		cmd := program(ctx, args...)
		var errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = full, &errs
		_ = cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != exitFailed || !strings.Contains(errs.String(), "no space left") {
			t.Errorf("%v: exit code %d and %q, want %d and what became of the output", args, code, errs.String(), exitFailed)
		}
	}
}

func TestMistakesInSettingsAreOneSentence(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ name, yaml, variable, value, want string }{
		{"a misspelt key", "rank: 3\n", "", "", `"rank" is not a setting`},
		{"a flag of one call", "json: true\n", "", "", `"json" is not a setting`},
		{"a key twice", "ranks: 3\nranks: 4\n", "", "", "line 2"},
		{"a list", "- ranks\n", "", "", "NAME: VALUE"},
		{"broken YAML", "ranks: [\n", "", "", "line 1"},
		{"a word for a number", "ranks: abc\n", "", "", `"abc" is not a whole number`},
		{"a flag of one call in the environment", "", "OCTET_JSON", "1", "OCTET_JSON in the environment is not a setting"},
		{"a word in the environment", "", "OCTET_RANKS", "abc", `OCTET_RANKS: "abc" is not a whole number`},
		{"more than a number holds", "", "OCTET_RANKS", "99999999999999999999", "out of range"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.variable != "" {
				t.Setenv(c.variable, c.value)
			}
			file := writeFile(t, dir, "octet.yaml", c.yaml)
			stdout, stderr, code := octet(t, "config", "print", "--config", file)
			if code != exitUsage || stdout != "" || !strings.Contains(stderr, c.want) || strings.Count(strings.TrimSpace(stderr), "\n") > 0 {
				t.Errorf("exit code %d, %q and %q, want one sentence with %q", code, stdout, stderr, c.want)
			}
		})
	}
}

func TestTokenizeAndDetokenizeAreInverse(t *testing.T) {
	const text = "func main() { fmt.Println(\"héllo\") }"
	stdout, stderr, code := octet(t, "tokenize", "--no-special", text)
	if code != 0 {
		t.Fatal(stderr)
	}
	back, stderr, code := octet(t, "detokenize", "--ids", strings.TrimSpace(stdout))
	if code != 0 || strings.TrimSuffix(back, "\n") != text {
		t.Errorf("came back as %q, exit code %d, %q", back, code, stderr)
	}
}

func writeFile(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func copyModel(t *testing.T, from string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return dir
}
