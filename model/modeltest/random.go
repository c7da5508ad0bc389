package modeltest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/checkpoint"
	"github.com/octet-run/octet/model/load"
)

// Random makes a checkpoint of the given configuration with random weights: an
// in-memory file with exactly the tensors that one rank alone asks for.
func Random(t *testing.T, config string, seed uint64) Checkpoint {
	t.Helper()
	fields, err := model.ParseFields("config.json", []byte(config))
	if err != nil {
		t.Fatal(err)
	}
	c, err := model.ParseConfig(fields)
	if err != nil {
		t.Fatal(err)
	}
	synthetic := checkpoint.Synthetic(seed)
	defer synthetic.Close()
	plan, err := load.Plan(synthetic, c, model.Shard{Rank: 0, Ranks: 1}, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	files, err := checkpoint.OpenBytes("random", Pack(plan, seed))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := files.Close(); err != nil {
			t.Error(err)
		}
	})
	return Checkpoint{Files: files, Config: c}
}

// Pack is a safetensors file of the tensors of a plan, with random contents.
func Pack(plan checkpoint.Plan, seed uint64) []byte {
	header, body := map[string]any{}, []byte(nil)
	rng, random := rand.New(rand.NewPCG(seed, 1)), checkpoint.NewRandom(seed)
	for _, s := range plan.Slices {
		if header[s.Tensor] != nil {
			continue
		}
		data := make([]byte, s.Rows*s.Cols*s.DType.Bytes())
		fill(s, data, rng, random, plan)
		shape := []int{s.Rows, s.Cols}
		if s.Vector {
			shape = shape[1:]
		}
		header[s.Tensor] = map[string]any{
			"dtype": storedType(s.DType), "shape": shape, "data_offsets": []int{len(body), len(body) + len(data)},
		}
		body = append(body, data...)
	}
	text, err := json.Marshal(header)
	if err != nil {
		panic(err)
	}
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), body...)
}

func storedType(d kernels.DType) string {
	if d == kernels.F8E4M3 {
		return "F8_E4M3"
	}
	return strings.ToUpper(d.String())
}

// fill writes one tensor. Norms are near one; the shape of a packed tensor is
// its scales' shape times the group.
func fill(s checkpoint.Slice, data []byte, rng *rand.Rand, random *checkpoint.Random, plan checkpoint.Plan) {
	switch {
	case checkpoint.IsNorm(s.Tensor):
		for i := 0; i < len(data); i += 2 {
			binary.LittleEndian.PutUint16(data[i:], uint16(0x3F80+rng.IntN(64)-32))
		}
	case strings.HasSuffix(s.Tensor, ".weight_shape"):
		rows, cols := packedShape(strings.TrimSuffix(s.Tensor, "shape")+"packed", plan)
		binary.LittleEndian.PutUint64(data, uint64(rows))
		binary.LittleEndian.PutUint64(data[8:], uint64(cols))
	case strings.HasSuffix(s.Tensor, "d2t"):
		for d := range s.Cols { // every second token of the target
			binary.LittleEndian.PutUint64(data[8*d:], uint64(d))
		}
	case strings.Contains(s.Tensor, "scale"):
		random.Fill(data, s.DType, 1<<12)
		for i := s.DType.Bytes() - 1; i < len(data); i += s.DType.Bytes() {
			data[i] &= 0x7F // scales are positive
		}
	default:
		random.Fill(data, s.DType, s.Cols)
	}
}

func packedShape(name string, plan checkpoint.Plan) (rows, cols int) {
	for _, s := range plan.Slices {
		if s.Tensor == name {
			return s.Rows, s.Cols * 8
		}
	}
	panic(fmt.Sprintf("no tensor %s in the plan", name))
}

// HoldOracle compares the logits of a random sequence with the oracle's at the
// given rank counts, run as a prompt of some tokens and then one by one.
func HoldOracle(t *testing.T, c Checkpoint, rankCounts []int, o model.Options, tolerance float64,
	newBackend func() (kernels.Backend, error),
) {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, 7))
	tokens := make([]int32, 20)
	for i := range tokens {
		tokens[i] = int32(rng.IntN(c.Config.Vocab))
	}
	want := NewOracle(c).Logits(tokens)
	o.Blocks, o.MaxRows, o.MaxPositions = 4, 32, 256
	for _, ranks := range rankCounts {
		Run(t, ranks, newBackend, func(r *Rank) error {
			s, err := NewSession(r, c, o)
			if err != nil {
				return err
			}
			for at := 0; at < len(tokens); {
				n := 1
				if at == 0 {
					n = 17
				}
				_, logits, err := s.Extend(tokens[at : at+n])
				if err != nil {
					return err
				}
				for i, row := range logits {
					if err := Near(fmt.Sprintf("logits after token %d", at+i), row, want[at+i], tolerance); err != nil {
						return err
					}
				}
				at += n
			}
			return nil
		})
	}
}
