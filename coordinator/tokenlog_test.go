package coordinator

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/octet-run/octet/actors/round"
)

func openLog(t *testing.T, path string, keep int) *DiskLog {
	t.Helper()
	l, err := OpenDiskLog(path, keep, Sync{Every: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLogsKeepWhatResumingNeeds(t *testing.T) {
	disk := openLog(t, filepath.Join(t.TempDir(), "log"), 3)
	defer func() {
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
	}()
	for name, l := range map[string]TokenLog{"memory": NewMemoryLog(3), "disk": disk} {
		check := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		for i := range 6 {
			id := fmt.Sprint("r", i)
			check(l.Begin(&Request{ID: id, Prompt: prompt(4), Sampling: round.Sampling{Seed: uint64(i), LogitBias: map[int32]float32{3: 1}}}))
			check(l.Append(id, []int32{1, 2}, []round.TokenLogprobs{{Token: 1, Logprob: -0.5}, {Token: 2}}))
			check(l.Append(id, []int32{int32(i)}, nil))
			check(l.End(id))
		}
		check(l.Append("never began", []int32{1}, nil))
		for i := range 6 {
			record, found := l.Find(fmt.Sprint("r", i))
			if found != (i >= 3) {
				t.Errorf("%s: record %d found: %v", name, i, found)
			}
			if !found {
				continue
			}
			if !slices.Equal(record.Tokens, []int32{1, 2, int32(i)}) || len(record.Logprobs) != 2 || record.Logprobs[0].Logprob != -0.5 {
				t.Errorf("%s: record %d has tokens %v, %d log-probabilities", name, i, record.Tokens, len(record.Logprobs))
			}
			if r := record.Request; r.Sampling.Seed != uint64(i) || !slices.Equal(r.Prompt, prompt(4)) || r.Sampling.LogitBias[3] != 1 {
				t.Errorf("%s: record %d has request %+v", name, i, r)
			}
		}
		// A request that begins again starts empty and is not dropped for its old end.
		check(l.Begin(&Request{ID: "r3"}))
		check(l.Begin(&Request{ID: "new"}))
		check(l.End("new"))
		if record, found := l.Find("r3"); !found || len(record.Tokens) != 0 {
			t.Errorf("%s: began again: found %v with %v", name, found, record.Tokens)
		}
	}
}

func TestARequestIsResumedInAnotherProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	request := Request{ID: "lost", Prompt: prompt(20), MaxTokens: 40, Sampling: round.Sampling{Temperature: 1, Seed: 31, Logprobs: 0}}
	quiet, _ := start(t, nil)
	want := collect(t, quiet, request)

	first := openLog(t, path, 8)
	if err := first.Begin(&request); err != nil {
		t.Fatal(err)
	}
	if err := first.Append("lost", tokenIDs(want)[:15], logprobsOf(want)[:15]); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil { // without End: the process died
		t.Fatal(err)
	}
	second := openLog(t, path, 8)
	t.Cleanup(func() { second.Close() })
	c, g := start(t, nil)
	c.Close()
	c, err := New(Config{Vocab: testVocab, Context: 2048, Blocks: 400, Eagle3: true, Log: second}, g)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	again := request
	again.Resume, again.Sampling.Seed = 10, 0
	rest := collect(t, c, again)
	if rest.Offset != 10 || !slices.Equal(tokenIDs(rest), tokenIDs(want)[10:]) || fmt.Sprint(logprobsOf(rest)) != fmt.Sprint(logprobsOf(want)[10:]) {
		t.Errorf("resumed at %d with %v, want %v", rest.Offset, tokenIDs(rest), tokenIDs(want)[10:])
	}
	if second, err := OpenDiskLog(path, 1, Sync{}); err == nil {
		second.Close()
		t.Error("two processes opened one log")
	}
}

// BenchmarkDiskLog is what one run of tokens of one request costs a round.
func BenchmarkDiskLog(b *testing.B) {
	for name, when := range map[string]Sync{"always": {Always: true}, "200ms": {Every: 200 * time.Millisecond}, "never": {}} {
		b.Run(name, func(b *testing.B) {
			l, err := OpenDiskLog(filepath.Join(b.TempDir(), "log"), 8, when)
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			if err := l.Begin(&Request{ID: "r", Prompt: prompt(20)}); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if err := l.Append("r", []int32{1, 2, 3, 4}, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
