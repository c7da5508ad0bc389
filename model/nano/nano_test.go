package nano_test

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/octet-run/octet/model/nano"
	"github.com/octet-run/octet/model/tokenizer"
)

const maxPairBytes = 20_000_000

// TestFilesHaveTheRecordedSums: every file is listed, with its hash, and the whole is small.
func TestFilesHaveTheRecordedSums(t *testing.T) {
	files := nano.Files()
	sums, err := fs.ReadFile(files, "SHA256SUMS")
	if err != nil {
		t.Fatal(err)
	}
	recorded := map[string]string{}
	for line := range strings.Lines(string(sums)) {
		sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok {
			t.Fatalf("line %q is not a sum and a name", line)
		}
		recorded[name] = sum
	}
	total := 0
	err = fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || name == "SHA256SUMS" {
			return err
		}
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		total += len(data)
		sum := sha256.Sum256(data)
		if got := hex.EncodeToString(sum[:]); got != recorded[name] {
			t.Errorf("%s has sum %s, recorded %q", name, got, recorded[name])
		}
		delete(recorded, name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range recorded {
		t.Errorf("%s has a recorded sum but is not embedded", name)
	}
	if total > maxPairBytes {
		t.Errorf("the pair has %d bytes, more than %d", total, maxPairBytes)
	}
}

func TestUnpackingAgainUsesTheSameFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	first, err := nano.Unpack(dir)
	if err != nil {
		t.Fatal(err)
	}
	weights := filepath.Join(first.Target, "model.safetensors")
	before, err := os.Stat(weights)
	if err != nil {
		t.Fatal(err)
	}
	second, err := nano.Unpack(dir)
	if err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(weights)
	if err != nil {
		t.Fatal(err)
	}
	if first != second || !os.SameFile(before, after) {
		t.Error("unpacked a second time")
	}
}

func TestUnpackReplacesADamagedCopy(t *testing.T) {
	for name, starts := range map[string]int{"freshly unpacked": 1, "compared before": 2} {
		t.Run(name, func(t *testing.T) { replacesDamaged(t, starts) })
	}
}

func replacesDamaged(t *testing.T, starts int) {
	dir := t.TempDir()
	var pair nano.Pair
	for range starts {
		var err error
		if pair, err = nano.Unpack(dir); err != nil {
			t.Fatal(err)
		}
	}
	weights := filepath.Join(pair.Draft, "model.safetensors")
	damaged, err := os.ReadFile(weights)
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(weights)
	if err != nil {
		t.Fatal(err)
	}
	want := sha256.Sum256(damaged)
	damaged[len(damaged)/2] ^= 1
	if err := os.WriteFile(weights, damaged, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(weights, time.Time{}, before.ModTime()); err != nil { // as if it had not been touched
		t.Fatal(err)
	}
	if _, err := nano.Unpack(dir); err != nil {
		t.Fatal(err)
	}
	repaired, err := os.ReadFile(weights)
	if err != nil {
		t.Fatal(err)
	}
	if sha256.Sum256(repaired) != want {
		t.Error("the damaged file is still there")
	}
	assertOnlyThePair(t, dir)
}

func TestConcurrentUnpackersAgree(t *testing.T) {
	dir := t.TempDir()
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			pair, err := nano.Unpack(dir)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := os.Stat(filepath.Join(pair.Target, "config.json")); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	assertOnlyThePair(t, dir)
}

func assertOnlyThePair(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 {
		t.Errorf("the cache folder has %v, want the pair alone", entries)
	}
}

func TestUnpackSaysWhereItCannotWrite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := nano.Unpack(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("got %v, want an error that names %s", err, file)
	}
}

// TestBenchPromptsAreTheirTokens: the tokenizer makes the recorded ids of each prompt's text.
func TestBenchPromptsAreTheirTokens(t *testing.T) {
	prompts, err := nano.BenchPrompts()
	if err != nil {
		t.Fatal(err)
	}
	if len(prompts) != 16 {
		t.Fatalf("%d prompts, want 16", len(prompts))
	}
	pair, err := nano.Unpack(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(pair.Target)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range prompts {
		assertEncodes(t, tok, i, p)
	}
}

func assertEncodes(t *testing.T, tok *tokenizer.Tokenizer, i int, p nano.BenchPrompt) {
	t.Helper()
	if got := tok.Encode(p.Text, true); !slices.Equal(got, p.IDs) {
		t.Errorf("prompt %d encodes to %v, recorded %v", i, got, p.IDs)
	}
	if got := tok.Decode(p.IDs, true); got != p.Text {
		t.Errorf("prompt %d decodes to %q", i, got)
	}
}
