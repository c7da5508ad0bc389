package modeltest

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/checkpoint"
	"github.com/octet-run/octet/model/kvcache"
	"github.com/octet-run/octet/model/load"
)

// Reference is a fixture's expected.json.
type Reference struct {
	Cases []Case
}

// Case is one prompt and what the reference makes of it.
type Case struct {
	PromptIDs         []int32   `json:"prompt_ids"`
	ArgmaxPerPosition []int32   `json:"argmax_per_position"`
	LastLogits        []float32 `json:"last_logits"`
	Greedy24          []int32   `json:"greedy_24"`
}

// Fixture is the path of a recorded checkpoint, seen from a package two levels
// below the root.
func Fixture(parts ...string) string {
	return filepath.Join(append([]string{"..", "..", "testdata", "fixtures"}, parts...)...)
}

// ReadJSON reads a recorded file.
func ReadJSON(t *testing.T, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// Checkpoint is an open fixture.
type Checkpoint struct {
	Files  *checkpoint.Files
	Config model.Config
}

// Open opens a checkpoint folder for the length of the test.
func Open(t *testing.T, dir string) Checkpoint {
	t.Helper()
	c, err := model.ReadConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	return Checkpoint{Files: OpenFiles(t, dir), Config: c}
}

// OpenFiles opens a checkpoint's tensors for the length of the test.
func OpenFiles(t *testing.T, dir string) *checkpoint.Files {
	t.Helper()
	files, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := files.Close(); err != nil {
			t.Error(err)
		}
	})
	return files
}

// Session is one sequence on one rank's target model.
type Session struct {
	Rank     *Rank
	Model    model.Model
	Cache    *kvcache.Cache
	Sequence *kvcache.Sequence
}

// NewSession loads the rank's part of a checkpoint.
func NewSession(r *Rank, c Checkpoint, o model.Options) (*Session, error) {
	m, _, err := load.Target(c.Files, c.Config, r.Shard, o, r.Backend, r, checkpoint.LoadConfig{})
	if err != nil {
		return nil, err
	}
	cache := kvcache.New(o.Blocks)
	return &Session{Rank: r, Model: m, Cache: cache, Sequence: cache.NewSequence()}, nil
}

// Extend runs tokens as one chunk, commits them, and returns what the pass left
// and, on rank 0, the logits of every row.
func (s *Session) Extend(tokens []int32) (model.Output, [][]float32, error) {
	var b kernels.Batch
	if err := s.Sequence.Append(&b, tokens); err != nil {
		return model.Output{}, nil, err
	}
	out, logits, err := s.Pass(&b)
	s.Sequence.Commit(len(tokens))
	return out, logits, err
}

// Pass runs a batch and gathers its logits to rank 0.
func (s *Session) Pass(b *kernels.Batch) (model.Output, [][]float32, error) {
	out := s.Model.Forward(b)
	full := s.Rank.GatherToRoot(s.Model.Logits(out.Hidden, nil), s.Model.VocabWidths())
	if err := s.Rank.Backend.Sync(); err != nil {
		return out, nil, err
	}
	logits := make([][]float32, full.Rows)
	for i := range logits {
		logits[i] = full.F32Row(i)
	}
	return out, logits, nil
}

// Argmax is the index of the largest value, the lowest on ties.
func Argmax(x []float32) int32 {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return int32(best)
}

// Choose is rank 0's argmax of the last row, told to everyone.
func (s *Session) Choose(logits [][]float32) int32 {
	token := []int32{0}
	if s.Rank.Rank() == 0 {
		token[0] = Argmax(logits[len(logits)-1])
	}
	s.Rank.Broadcast(kernels.HostTensor(kernels.I32, 1, 1, token), 0)
	return token[0]
}

// recordedRounding is half a unit of the fifth decimal, to which references are rounded.
const recordedRounding = 5e-6

// Near reports values that differ by more than tolerance times the largest wanted.
func Near(what string, got, want []float32, tolerance float64) error {
	if len(got) != len(want) {
		return fmt.Errorf("%s: %d values, want %d", what, len(got), len(want))
	}
	largest, worst, at := 0.0, 0.0, 0
	for i := range want {
		largest = max(largest, math.Abs(float64(want[i])))
		if d := math.Abs(float64(got[i] - want[i])); d > worst || math.IsNaN(d) {
			worst, at = d, i
			if math.IsNaN(d) {
				break
			}
		}
	}
	if !(worst <= tolerance*largest+recordedRounding) {
		return fmt.Errorf("%s: value %d is %g, want %g (tolerance %g of %g)", what, at, got[at], want[at], tolerance, largest)
	}
	return nil
}

// HoldReference compares a checkpoint with its recorded reference at one rank count.
func HoldReference(t *testing.T, c Checkpoint, ref Reference, ranks int, o model.Options, tolerance float64,
	newBackend func() (kernels.Backend, error),
) {
	t.Helper()
	o.Blocks, o.MaxRows = 16, 64
	Run(t, ranks, newBackend, func(r *Rank) error {
		s, err := NewSession(r, c, o)
		if err != nil {
			return err
		}
		for i, want := range ref.Cases {
			if err := holdCase(s, want, tolerance); err != nil {
				return fmt.Errorf("case %d: %w", i, err)
			}
			s.Sequence.Truncate(0)
		}
		if s.Cache.Free() != o.Blocks {
			return fmt.Errorf("%d of %d pages are free at rest", s.Cache.Free(), o.Blocks)
		}
		return nil
	})
}

func holdCase(s *Session, want Case, tolerance float64) error {
	_, logits, err := s.Extend(want.PromptIDs)
	if err != nil {
		return err
	}
	if s.Rank.Rank() == 0 {
		for p, row := range logits {
			if got := Argmax(row); got != want.ArgmaxPerPosition[p] {
				return fmt.Errorf("argmax after position %d is %d, want %d", p, got, want.ArgmaxPerPosition[p])
			}
		}
		if err := Near("last logits", logits[len(logits)-1], want.LastLogits, tolerance); err != nil {
			return err
		}
	}
	for i, token := range want.Greedy24 {
		got := s.Choose(logits)
		if got != token {
			return fmt.Errorf("greedy token %d is %d, want %d", i, got, token)
		}
		if _, logits, err = s.Extend([]int32{got}); err != nil {
			return err
		}
	}
	return nil
}
