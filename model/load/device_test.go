package load_test

import (
	"fmt"
	"slices"
	"testing"
	"unsafe"

	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/kernels/cpu"
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/checkpoint"
	"github.com/octet-run/octet/model/kvcache"
	"github.com/octet-run/octet/model/layers"
	"github.com/octet-run/octet/model/load"
	"github.com/octet-run/octet/model/modeltest"
)

// mover is a backend whose weights are copies: the host memory that they were made
// in is used again for the next ones, as it is for a device with its own memory.
type mover struct {
	kernels.Backend
	moved int
}

func (m *mover) Upload(host kernels.Tensor) (kernels.Tensor, error) {
	if host.Empty() {
		return host, nil
	}
	t := host
	t.Stride = t.Cols
	width := t.Cols * t.DType.Bytes()
	// Whole vectors of the widest kind, as the arena gives.
	copied := make([]uint64, (t.Rows*width+7)/8)
	t.Host = unsafe.Pointer(unsafe.SliceData(copied))
	for r := range t.Rows {
		copy(t.ByteRow(r), host.ByteRow(r))
	}
	m.moved++
	return t, nil
}

// TestADeviceWithItsOwnMemoryHasTheSameWeights: what a layer derives on the host is
// derived from nothing that an earlier layer left there.
func TestADeviceWithItsOwnMemoryHasTheSameWeights(t *testing.T) {
	for _, name := range []string{"llama-gqa", "qwen3", "deepseek-v3-kimi", "kimi-k25-int4"} {
		for _, shard := range []model.Shard{{Ranks: 1}, {Ranks: 2}, {Rank: 1, Ranks: 2}, {Rank: 3, Ranks: 4}} {
			t.Run(fmt.Sprintf("%s/%d of %d", name, shard.Rank, shard.Ranks), func(t *testing.T) {
				logits := func(moves bool) [][]float32 {
					inner, err := cpu.New(cpu.Config{})
					if err != nil {
						t.Fatal(err)
					}
					defer inner.Close()
					b := &mover{Backend: inner}
					var used kernels.Backend = inner
					if moves {
						used = b
					}
					values := shardLogits(t, used, name, shard)
					if moves && b.moved == 0 {
						t.Fatal("nothing was moved")
					}
					return values
				}
				if !slices.EqualFunc(logits(true), logits(false), slices.Equal[[]float32]) {
					t.Error("moved weights yield other logits than weights in place")
				}
			})
		}
	}
}

// shardLogits runs one pass of one rank's part, the others' left out.
func shardLogits(t *testing.T, b kernels.Backend, name string, shard model.Shard) [][]float32 {
	t.Helper()
	c := modeltest.Open(t, modeltest.Fixture(name))
	o := model.Options{Blocks: 16, MaxRows: 64}
	m, _, err := load.Target(c.Files, c.Config, shard, o, b, layers.Alone{Backend: b, As: shard}, checkpoint.LoadConfig{})
	if err != nil {
		t.Fatal(err)
	}
	cache := kvcache.New(o.Blocks)
	var batch kernels.Batch
	if err := cache.NewSequence().Append(&batch, []int32{1, 5, 9, 11, 40, 3, 8}); err != nil {
		t.Fatal(err)
	}
	return fetch[float32](t, b, m.Logits(m.Forward(&batch).Hidden, nil))
}

// fetch brings a tensor of 32-bit values to the host; none of an empty one.
func fetch[V int32 | float32](t *testing.T, b kernels.Backend, from kernels.Tensor) [][]V {
	t.Helper()
	if from.Empty() {
		return nil
	}
	values := make([]V, from.Rows*from.Cols)
	if err := b.Download(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), 4*len(values)), from); err != nil {
		t.Fatal(err)
	}
	rows := make([][]V, from.Rows)
	for r := range rows {
		rows[r] = values[r*from.Cols:][:from.Cols]
	}
	return rows
}
