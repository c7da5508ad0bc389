package coordinator

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/speculation"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the expected results in testdata")

// TestScheduler runs the scripts of testdata/scheduler: commands, a line of dashes,
// what they print. Regenerate with go test -run TestScheduler -rewrite.
//
//	config batch=2 blocks=40 chunk=64 verify=32
//	submit NAME prompt=N max=N [tree=N]    queue a sequence; tree is the nodes it drafts
//	round                                  plan a round and apply it: every verify accepts one draft
//	finish NAME
//	reset                                  a new epoch
func TestScheduler(t *testing.T) {
	files, err := filepath.Glob("testdata/scheduler/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			script := &schedulerScript{names: map[string]*sequence{}, trees: map[*sequence]int{}}
			for block := range strings.SplitSeq(strings.TrimRight(string(data), "\n"), "\n\n") {
				commands, _, _ := strings.Cut(block, "\n----")
				if got.Len() > 0 {
					got.WriteString("\n")
				}
				fmt.Fprintf(&got, "%s\n----\n%s", strings.TrimRight(commands, "\n"), script.run(t, commands))
			}
			if *rewrite {
				if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got.String() != string(data) {
				t.Errorf("got:\n%s", got.String())
			}
		})
	}
}

type schedulerScript struct {
	config    Config
	scheduler *scheduler
	names     map[string]*sequence
	trees     map[*sequence]int
}

func (s *schedulerScript) run(t *testing.T, commands string) string {
	var out strings.Builder
	lines := bufio.NewScanner(strings.NewReader(commands))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		switch fields[0] {
		case "config":
			s.config = Config{
				Batch: option(t, fields, "batch", 4), Blocks: option(t, fields, "blocks", 100), BlockTokens: 16, Queue: option(t, fields, "queue", 8),
				ChunkRows: option(t, fields, "chunk", 64), VerifyRows: option(t, fields, "verify", 64), Context: 4096, Vocab: 1000,
			}
			s.scheduler = newScheduler(&s.config)
		case "submit":
			s.submit(t, &out, fields)
		case "finish":
			s.scheduler.finish(s.names[fields[1]])
		case "reset":
			s.scheduler.reset()
		case "round":
			s.round(&out)
		default:
			t.Fatalf("unknown command %q", lines.Text())
		}
	}
	return out.String()
}

func (s *schedulerScript) submit(t *testing.T, out *strings.Builder, fields []string) {
	r := &Request{Prompt: prompt(option(t, fields, "prompt", 10)), MaxTokens: option(t, fields, "max", 10)}
	q := &sequence{prompt: r.Prompt, blocks: s.config.blocksFor(r), key: uint64(len(s.names) + 1), sampling: &r.Sampling}
	s.names[fields[1]] = q
	s.trees[q] = option(t, fields, "tree", 1)
	if !s.scheduler.submit(q) {
		fmt.Fprintf(out, "%s: queue full\n", fields[1])
		return
	}
	fmt.Fprintf(out, "%s: %d blocks\n", fields[1], q.blocks)
}

func (s *schedulerScript) round(out *strings.Builder) {
	entries, owners := s.scheduler.plan(func(q *sequence, load speculation.Load, rows int) {
		q.option = speculation.Option{}
		if n := s.trees[q]; n > 1 && n <= rows {
			q.option = speculation.Option{By: speculation.Eagle3, Shape: speculation.Chain(n - 1)}
		}
		q.expected = 1
	})
	for i := range entries {
		e := &entries[i]
		switch e.Kind {
		case round.Release:
			fmt.Fprintf(out, "release slot=%d request=%d\n", e.Slot, e.Request)
			continue
		case round.Decode:
			fmt.Fprintf(out, "decode  slot=%d request=%d committed=%d accepted=%v nodes=%d\n", e.Slot, e.Request, e.Committed, e.Accepted, owners[i].option.Nodes())
		default:
			fmt.Fprintf(out, "prefill slot=%d request=%d committed=%d rows=%d last=%v sampling=%v\n", e.Slot, e.Request, e.Committed, len(e.Tokens), e.Last, e.Sampling != nil)
		}
		s.apply(e, owners[i])
	}
	fmt.Fprintf(out, "waiting=%d running=%d free=%d\n", len(s.scheduler.waiting), len(s.scheduler.running), s.scheduler.freeBlocks)
}

// apply plays the ranks: a last chunk yields one token, a verify one draft and one
// token more, without a draft one token.
func (s *schedulerScript) apply(e *round.Entry, q *sequence) {
	if e.Kind != round.Decode {
		q.filled += len(e.Tokens)
		if e.Last {
			q.generated = append(q.generated, 1)
		}
		return
	}
	q.accepted = []uint8{0}
	if q.option.Nodes() > 1 {
		q.accepted = []uint8{0, 1}
	}
	q.filled += len(q.accepted)
	q.generated = append(q.generated, slices.Repeat([]int32{1}, len(q.accepted))...)
}

func option(t *testing.T, fields []string, name string, value int) int {
	for _, field := range fields {
		if text, ok := strings.CutPrefix(field, name+"="); ok {
			if _, err := fmt.Sscan(text, &value); err != nil {
				t.Fatalf("%s: %v", field, err)
			}
		}
	}
	return value
}
