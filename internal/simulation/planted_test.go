package simulation

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// bug is a bug that is planted in a copy of a real file: where old stands there is
// changed instead, in which planted says whether this bug is wanted. All bugs are
// compiled into one test binary, which an environment variable tells its bug. The
// packages themselves know nothing of it.
type bug struct {
	name      string
	invariant int // of the design's list
	file      string
	old       string
	changed   string
}

// bugVariable names the bug to a planted binary.
const bugVariable = "OCTET_PLANTED_BUG"

var bugs = []bug{
	// 1. Output is the same with and without faults.
	{
		"sampler's position is off by one after a replay", 1, "rank/verify.go", `s.observe(entry.Tokens)`,
		`if planted("NAME") && !entry.Last { s.observe(entry.Tokens[:len(entry.Tokens)-1]) } else { s.observe(entry.Tokens) }`,
	},
	{
		"a replay drops the last token", 1, "coordinator/loop.go", `t.finish.Replays++`,
		`if n := len(t.sequence.generated); planted("NAME") && n > 0 { t.sequence.generated = t.sequence.generated[:n-1] }; t.finish.Replays++`,
	},
	{
		"a flag of the operation before satisfies a wait", 1, "collectives/transport/wait.go", `int32(uint32(v)-op) >= 0`,
		`(int32(uint32(v)-op) >= 0 || planted("NAME") && int32(uint32(v)-op) >= -1)`,
	},
	{
		"an arrival that is counted twice is not noticed", 1, "collectives/transport/rendezvous.go", `if !m.posted(r, op) {`,
		`if !m.posted(r, op) && !planted("NAME") {`,
	},
	{
		"the log keeps tokens twice", 1, "coordinator/tokenlog.go", `record.Tokens = append(record.Tokens, tokens...)`,
		`if planted("NAME") { record.Tokens = append(record.Tokens, tokens...) }; record.Tokens = append(record.Tokens, tokens...)`,
	},

	// 2. Every request ends exactly once.
	{
		"a request that is replayed too often is forgotten", 2, "coordinator/loop.go", `c.end(t, FinishError, &GroupError{Replays: t.finish.Replays, Err: err})`,
		`if !planted("NAME") { c.end(t, FinishError, &GroupError{Replays: t.finish.Replays, Err: err}) }`,
	},
	{
		"requests of a group that is gone are forgotten", 2, "coordinator/loop.go", `c.endAll(FinishError, &GroupError{Err: c.gone})`,
		`if !planted("NAME") { c.endAll(FinishError, &GroupError{Err: c.gone}) }`,
	},
	{
		"a request is replayed once too often", 2, "coordinator/loop.go", `t.finish.Replays >= c.config.Replays`,
		`(t.finish.Replays > c.config.Replays || !planted("NAME") && t.finish.Replays == c.config.Replays)`,
	},

	// 3. No token is lost, none comes twice, none after the stop.
	{
		"a token comes again after a reconnection", 3, "coordinator/task.go", `newOutput(c.config.Tokenizer, r.Prompt, r.Stop, r.Resume)`,
		`newOutput(c.config.Tokenizer, r.Prompt, r.Stop, func() int { if planted("NAME") { return max(r.Resume-1, 0) }; return r.Resume }())`,
	},
	{
		"a stop is not honoured after a replay", 3, "coordinator/task.go", `speculation.Cut(run, t.stopIDs, `,
		`speculation.Cut(run, func() []int32 { if planted("NAME") && t.finish.Replays > 0 { return nil }; return t.stopIDs }(), `,
	},
	{
		"a stop inside an accepted run is overlooked", 3, "coordinator/task.go", `t.request.MaxTokens-len(t.sequence.generated))`,
		`t.request.MaxTokens-len(t.sequence.generated)); if planted("NAME") && end == speculation.FinishStop && keep < len(run) { keep, end = len(run), speculation.NotFinished }`,
	},
	{
		"the limit is one higher after a resumption", 3, "coordinator/task.go", `t.request.MaxTokens-len(t.sequence.generated))`,
		`t.request.MaxTokens-len(t.sequence.generated)+func() int { if planted("NAME") && t.request.Resume > 0 { return 1 }; return 0 }())`,
	},
	{
		"what was kept of a verify is not committed", 3, "coordinator/roundtrip.go", `t.sequence.accepted = outcome.Path`,
		`t.sequence.accepted = outcome.Path; if planted("NAME") { t.sequence.accepted = outcome.Path[:1] }`,
	},

	// 4. All ranks' operation hashes agree.
	{
		"hashes are not compared", 4, "actors/board/board.go", `if err := b.compare(seq); err != nil {`,
		`if err := b.compare(seq); err != nil && !planted("NAME") {`,
	},

	// 5. Nothing of an old epoch is applied.
	{
		"a result of an old epoch is accepted", 5, "actors/board/board.go", `if result.Epoch != b.epoch || result.Seq != seq {`,
		`if (result.Epoch != b.epoch || result.Seq != seq) && !planted("NAME") {`,
	},
	{
		"a rank of an old epoch counts as ready", 5, "actors/lifecycle/machine.go", `if epoch != l.epoch || l.phase != Forming {`,
		`if (epoch != l.epoch && !planted("NAME")) || l.phase != Forming {`,
	},
	{
		"a loss of an old epoch ends the new one", 5, "actors/lifecycle/machine.go", `if cause.Epoch != l.epoch || (l.phase != Forming && l.phase != Serving) {`,
		`if (cause.Epoch != l.epoch && !planted("NAME")) || (l.phase != Forming && l.phase != Serving) {`,
	},
	{
		"a process of an old epoch counts as gone", 5, "actors/lifecycle/machine.go", `if epoch != l.epoch || l.phase == Closed {`,
		`if (epoch != l.epoch && !planted("NAME")) || l.phase == Closed {`,
	},
	{
		"a control frame of an old epoch is read", 5, "actors/link/link.go", `case int32(f.Epoch-e.epoch) < 0:`,
		`case planted("NAME") && f.Epoch+1 == e.epoch: e.received = f.Seq; return f, true, nil
		case int32(f.Epoch-e.epoch) < 0:`,
	},
	{"a group serves before its last rank is ready", 5, "actors/lifecycle/machine.go", `if !ready {
			return nil`, `if !ready && !(planted("NAME") && !l.ready[l.ranks-1]) {
			return nil`},

	// 6. The bounds.
	{
		"an abort reaches nobody", 6, "actors/board/board.go", `b.abort.Raise(b.epoch, rank, reason)`,
		`if !planted("NAME") { b.abort.Raise(b.epoch, rank, reason) }`,
	},
	{
		"the rank that got furthest is blamed", 6, "actors/board/board.go", `cmp.Compare(p.ops, q.ops)`,
		`func() int { if planted("NAME") { p, q = q, p }; return cmp.Compare(p.ops, q.ops) }()`,
	},
	{
		"nobody hears for whom the others wait", 6, "actors/board/board.go", `cmp.Compare(q.named, p.named)`,
		`cmp.Compare(q.named, p.named)*func() int { if planted("NAME") { return 0 }; return 1 }()`,
	},

	// 7. At rest nothing is left.
	{
		"the blocks of a finished request are not given back", 7, "coordinator/scheduler.go", `s.freeBlocks += q.blocks`,
		`if !planted("NAME") { s.freeBlocks += q.blocks }`,
	},
	{
		"a slot is released twice", 7, "coordinator/scheduler.go", `s.leaving = s.leaving[:0]`,
		`if !planted("NAME") || len(s.leaving) < 2 { s.leaving = s.leaving[:0] } else { s.leaving = s.leaving[:1] }`,
	},
	{
		"ranks are not told of a request that has ended", 7, "coordinator/scheduler.go", `add(round.Entry{Kind: round.Release, Slot: q.slot, Request: q.key}, nil)`,
		`if !planted("NAME") { add(round.Entry{Kind: round.Release, Slot: q.slot, Request: q.key}, nil) }`,
	},
	{"a request that ends between epochs keeps its slot", 7, "coordinator/scheduler.go", `if q.introduced {
			s.leaving`, `if q.introduced || planted("NAME") {
			s.leaving`},
	{
		"a rank keeps the pages of a request that has ended", 7, "rank/slot.go", `s.cache.Release()`,
		`if !planted("NAME") { s.cache.Release() }`,
	},
	{
		"pages of rejected rows are lost", 7, "model/kvcache/sequence.go", `s.cache.give(s.blocks[first:])`,
		`if !planted("NAME") { s.cache.give(s.blocks[first:]) }`,
	},
	{
		"memory is freed before the last process is gone", 7, "actors/lifecycle/machine.go", `if len(where(l.out, false)) > 0 {`,
		`if left := where(l.out, false); len(left) > 0 && !(planted("NAME") && len(left) == 1 && left[0] == l.ranks-1) {`,
	},
	{
		"requests are admitted without room for them", 7, "coordinator/scheduler.go", `q.blocks > s.freeBlocks {`,
		`(q.blocks > s.freeBlocks && !planted("NAME")) {`,
	},

	// 8. The restart budget is honoured.
	{
		"the restart budget is off by one", 8, "actors/lifecycle/restart.go", `if len(b.spent) >= b.Max {`,
		`if len(b.spent) > b.Max || !planted("NAME") && len(b.spent) == b.Max {`,
	},
	{
		"the restart window never ends", 8, "actors/lifecycle/restart.go", `if now.Sub(at) < b.Window {`,
		`if now.Sub(at) < b.Window || planted("NAME") {`,
	},
}

var wantedBug = flag.Bool("planted", false, "run seeds until the planted bug is found: for the test of planted bugs")

// bugLimit is within how many seeds a bug must be found.
const bugLimit = 500

func TestPlantedBugsHaveTheirPlaces(t *testing.T) { plantAll(t) }

// TestPlantedBugsAreFound compiles the real packages with all bugs and has each
// found within bugLimit seeds.
func TestPlantedBugsAreFound(t *testing.T) {
	if os.Getenv("OCTET_TEST_FULL") == "" || *wantedBug {
		t.Skip("takes minutes: set OCTET_TEST_FULL, or make planted")
	}
	binary := compilePlanted(t)
	found := make([]finding, len(bugs))
	jobs := make(chan int)
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			for i := range jobs {
				found[i] = hunt(binary, bugs[i].name)
				t.Logf("invariant %d | %-58s | %3d seeds | %s", bugs[i].invariant, bugs[i].name, found[i].seeds, found[i].breach)
			}
		})
	}
	for i := range bugs {
		jobs <- i
	}
	close(jobs)
	workers.Wait()
	if none := hunt(binary, "none"); none.seeds > 0 {
		t.Errorf("without a bug seed %d breaches: %s", none.seeds, none.breach)
	}
	for i, b := range bugs {
		if found[i].seeds == 0 {
			t.Errorf("%s: not found within %d seeds: %s", b.name, bugLimit, found[i].breach)
		}
	}
}

// plantAll returns the files that have bugs, with them, by path.
func plantAll(t *testing.T) map[string]string {
	t.Helper()
	root, texts := moduleRoot(t), map[string]string{}
	for _, b := range bugs {
		path := filepath.Join(root, b.file)
		text, known := texts[path]
		if !known {
			original, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			text = string(original)
		}
		texts[path] = plant(t, text, b)
	}
	return texts
}

// compilePlanted makes the test binary of this package with the bugs in its
// dependencies.
func compilePlanted(t *testing.T) string {
	t.Helper()
	dir, overlay, n := t.TempDir(), map[string]string{}, 0
	write := func(path, text string) {
		n++
		copied := filepath.Join(dir, strconv.Itoa(n)+".go")
		if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay[path] = copied
	}
	for path, text := range plantAll(t) {
		write(path, text)
		folder := filepath.Dir(path)
		if which := filepath.Join(folder, "planted.go"); overlay[which] == "" {
			write(which, fmt.Sprintf(plantedFile, filepath.Base(folder), bugVariable))
		}
	}
	spec, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	specFile, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "planted.test")
	if err := os.WriteFile(specFile, spec, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "test", "-c", "-overlay", specFile, "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("compiling the bugs: %v\n%s", err, out)
	}
	return binary
}

// plantedFile says, in each package that has bugs, which is wanted.
const plantedFile = `package %s

import "os"

var plantedBug = os.Getenv(%q)

func planted(name string) bool { return plantedBug == name }
`

// plant changes the one place of a bug. Where two bugs share a place, the second
// finds it at the end of what the first made of it.
func plant(t *testing.T, text string, b bug) string {
	t.Helper()
	at := strings.LastIndex(text, b.old)
	if at < 0 {
		t.Fatalf("%s has changed: the bug %q no longer finds its place %q", b.file, b.name, b.old)
	}
	return text[:at] + strings.ReplaceAll(b.changed, "NAME", b.name) + text[at+len(b.old):]
}

func moduleRoot(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// finding is by which seed a bug was found, and how; 0: it was not.
type finding struct {
	seeds  int
	breach string
}

// hunt runs a planted binary until it finds its bug.
func hunt(binary, name string) finding {
	run := exec.Command(binary, "-test.run", "^TestHunt$", "-planted", "-test.timeout", "30m")
	run.Env = append(os.Environ(), bugVariable+"="+name)
	out, err := run.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return finding{0, err.Error()}
	}
	last := 0
	for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
		var seed int
		if n, _ := fmt.Sscanf(lines.Text(), "hunt: seed %d", &seed); n == 1 {
			last = seed
		}
		if _, breach, is := strings.Cut(lines.Text(), "hunt: breach: "); is {
			return finding{last, breach}
		}
		if strings.HasPrefix(lines.Text(), "panic: ") || strings.HasPrefix(lines.Text(), "fatal error: ") {
			return finding{last, lines.Text()}
		}
	}
	return finding{0, strings.TrimSpace(string(out[max(0, len(out)-60):]))}
}

// TestHunt runs seeds until one breaches an invariant, and says which.
func TestHunt(t *testing.T) {
	if !*wantedBug {
		t.Skip("only with a planted bug")
	}
	limit := uint64(bugLimit)
	if os.Getenv(bugVariable) == "none" {
		limit = 40
	}
	for seed := uint64(1); seed <= limit; seed++ {
		fmt.Printf("hunt: seed %d\n", seed)
		if r := simulate(t, seed, script(t, seed)); len(r.Breaches) > 0 {
			breach, _, _ := strings.Cut(r.Breaches[0], "\n")
			fmt.Printf("hunt: breach: %.140s\n", breach)
			return
		}
	}
}
