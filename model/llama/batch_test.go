package llama_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/kvcache"
	"github.com/octet-run/octet/model/modeltest"
)

// TestRowsDoNotDependOnTheirCompany runs random sequences alone, token by token,
// and again in batches of chunks and trees with random page layouts: every
// row's logits must be the same bits.
func TestRowsDoNotDependOnTheirCompany(t *testing.T) {
	for _, name := range []string{"llama-gqa", "deepseek-v3-kimi"} {
		c := modeltest.Open(t, modeltest.Fixture(name))
		t.Run(name, func(t *testing.T) {
			modeltest.Run(t, 2, newCPU, func(r *modeltest.Rank) error {
				s, err := modeltest.NewSession(r, c, model.Options{Blocks: 64, MaxRows: 128})
				if err != nil {
					return err
				}
				rng := rand.New(rand.NewPCG(1, 2))
				trunks := make([][]int32, 3)
				for i := range trunks {
					trunks[i] = randomTokens(rng, 5+11*i, c.Config.Vocab)
				}
				return companions(s, rng, trunks)
			})
		})
	}
}

func randomTokens(rng *rand.Rand, n, vocab int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(rng.IntN(vocab))
	}
	return out
}

// branch is one path of a tree hung on a trunk.
type branch struct {
	trunk int
	path  []int32
}

// companions prefills all trunks in one batch, hangs a tree of two branches on
// each, runs all trees in one batch, and compares with runs alone.
func companions(s *modeltest.Session, rng *rand.Rand, trunks [][]int32) error {
	vocab := s.Model.Config().Vocab
	sequences := make([]*kvcache.Sequence, len(trunks))
	var b kernels.Batch
	var want []branch
	for i, trunk := range trunks {
		sequences[i] = s.Cache.NewSequence()
		if err := sequences[i].Append(&b, trunk); err != nil {
			return err
		}
	}
	_, prefill, err := s.Pass(&b)
	if err != nil {
		return err
	}
	got := [][]float32{}
	at := 0
	for i, trunk := range trunks {
		sequences[i].Commit(len(trunk))
		at += len(trunk)
		want = append(want, branch{trunk: i})
		if s.Rank.Rank() == 0 {
			got = append(got, slices.Clone(prefill[at-1]))
		}
	}
	// Nodes: 0, then two branches 1-3 and 2-4.
	sets := []uint64{0b00001, 0b00011, 0b00101, 0b01011, 0b10101}
	b = kernels.Batch{}
	for i := range trunks {
		tokens := randomTokens(rng, len(sets), vocab)
		if err := sequences[i].AppendTree(&b, tokens, sets); err != nil {
			return err
		}
		for row := range sets {
			path := []int32{}
			for j := range sets {
				if sets[row]>>j&1 == 1 {
					path = append(path, tokens[j])
				}
			}
			want = append(want, branch{i, path})
		}
	}
	_, trees, err := s.Pass(&b)
	if err != nil {
		return err
	}
	for _, row := range trees {
		got = append(got, slices.Clone(row))
	}
	for _, q := range sequences {
		q.Release()
	}
	return alone(s, trunks, want, got)
}

// alone runs each branch by itself, one token a pass, and compares the last row.
func alone(s *modeltest.Session, trunks [][]int32, want []branch, got [][]float32) error {
	for i, w := range want {
		s.Sequence.Truncate(0)
		var logits [][]float32
		for _, token := range append(slices.Clone(trunks[w.trunk]), w.path...) {
			var err error
			if _, logits, err = s.Extend([]int32{token}); err != nil {
				return err
			}
		}
		if s.Rank.Rank() == 0 && !slices.Equal(logits[0], got[i]) {
			return fmt.Errorf("row %d (trunk %d, branch %v) differs from a run alone", i, w.trunk, w.path)
		}
	}
	return nil
}
