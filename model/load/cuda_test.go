//go:build cuda

package load_test

import (
	"fmt"
	"runtime"
	"testing"
	"unsafe"

	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/kernels/cpu"
	"github.com/octet-run/octet/kernels/cuda"
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/checkpoint"
	"github.com/octet-run/octet/model/kvcache"
	"github.com/octet-run/octet/model/layers"
	"github.com/octet-run/octet/model/load"
	"github.com/octet-run/octet/model/modeltest"
)

// fixturesOnGPU are the recorded checkpoints and how far bf16 activations may
// take their logits, relative to the largest. A random router has near ties that
// bf16 decides otherwise, so experts get more.
var fixturesOnGPU = []struct {
	name      string
	tolerance float64
}{
	{"llama-gqa", 2e-2},
	{"qwen3", 2e-2},
	{"deepseek-v3-kimi", 1e-1},
	{"kimi-k25-int4", 1e-1},
}

// TestFixturesOnADevice holds each checkpoint to its reference on the GPU, and on
// the CPU to show that the comparison itself is right.
func TestFixturesOnADevice(t *testing.T) {
	backends := map[string]func() (kernels.Backend, error){
		"cpu":  func() (kernels.Backend, error) { return cpu.New(cpu.Config{}) },
		"cuda": func() (kernels.Backend, error) { return cuda.New(cuda.Config{ScratchBytes: 64 << 20}) },
	}
	for device, newBackend := range backends {
		for _, f := range fixturesOnGPU {
			t.Run(device+"/"+f.name, func(t *testing.T) {
				if device == "cuda" && cuda.Count() == 0 {
					t.Skip("no CUDA device on this machine")
				}
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				b, err := newBackend()
				if err != nil {
					t.Fatal(err)
				}
				defer b.Close()
				holdOnDevice(t, b, f.name, f.tolerance)
			})
		}
	}
}

func holdOnDevice(t *testing.T, b kernels.Backend, name string, tolerance float64) {
	t.Helper()
	c := modeltest.Open(t, modeltest.Fixture(name))
	var ref modeltest.Reference
	modeltest.ReadJSON(t, modeltest.Fixture(name, "expected.json"), &ref)
	o := model.Options{Blocks: 16, MaxRows: 64}
	m, _, err := load.Target(c.Files, c.Config, model.Shard{Ranks: 1}, o, b, layers.Alone{Backend: b}, checkpoint.LoadConfig{})
	if err != nil {
		t.Fatal(err)
	}
	cache := kvcache.New(o.Blocks)
	sequence := cache.NewSequence()
	for i, want := range ref.Cases {
		var batch kernels.Batch
		if err := sequence.Append(&batch, want.PromptIDs); err != nil {
			t.Fatal(err)
		}
		logits, err := deviceLogits(b, m, &batch)
		if err != nil {
			t.Fatal(err)
		}
		last := len(logits) - 1
		if err := modeltest.Near(fmt.Sprintf("case %d, last logits", i), logits[last], want.LastLogits, tolerance); err != nil {
			t.Error(err)
		}
		checkChoices(t, fmt.Sprintf("case %d", i), logits, want.ArgmaxPerPosition, tolerance)
		sequence.Truncate(0)
	}
}

// checkChoices allows another argmax than the reference's where the logits of the
// two are nearer than twice the tolerance.
func checkChoices(t *testing.T, what string, logits [][]float32, want []int32, tolerance float64) {
	t.Helper()
	for p, row := range logits {
		got := modeltest.Argmax(row)
		if gap := float64(row[got] - row[want[p]]); gap > 2*tolerance*float64(max(row[got], -row[got])) {
			t.Errorf("%s: argmax after position %d is %d, want %d, which is %g behind", what, p, got, want[p], gap)
		}
	}
}

// deviceLogits runs one pass and brings its logits to the host.
func deviceLogits(b kernels.Backend, m model.Model, batch *kernels.Batch) ([][]float32, error) {
	full := m.Logits(m.Forward(batch).Hidden, nil)
	values := make([]float32, full.Rows*full.Cols)
	if err := b.Download(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), 4*len(values)), full); err != nil {
		return nil, err
	}
	rows := make([][]float32, full.Rows)
	for r := range rows {
		rows[r] = values[r*full.Cols:][:full.Cols]
	}
	return rows, nil
}
