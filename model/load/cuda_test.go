//go:build cuda

package load_test

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"

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

// bf16Tolerance is how far bf16 activations may take logits, relative to the
// largest, and how near two experts' scores must be for bf16 to swap them.
const bf16Tolerance = 2e-2

// TestFixturesOnADevice holds each checkpoint to its reference on the GPU, and on
// the CPU to show that the comparison itself is right. Where the two choose other
// experts, from scores that are nearer than bf16 tells apart, the row and those
// that see it are excused.
func TestFixturesOnADevice(t *testing.T) {
	for _, name := range []string{"llama-gqa", "qwen3", "deepseek-v3-kimi", "kimi-k25-int4"} {
		t.Run(name, func(t *testing.T) {
			if cuda.Count() == 0 {
				t.Skip("no CUDA device on this machine")
			}
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			host, err := cpu.New(cpu.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer host.Close()
			device, err := cuda.New(cuda.Config{ScratchBytes: 64 << 20})
			if err != nil {
				t.Fatal(err)
			}
			defer device.Close()
			onHost, onDevice := &routes{Backend: host, t: t}, &routes{Backend: device, t: t}
			hold(t, onHost, name, nil)
			held := hold(t, onDevice, name, onHost)
			t.Logf("%d rows held, %d excused by their router", held, onDevice.rows-held)
			if 8*held < onDevice.rows {
				t.Errorf("only %d of %d rows are held to the reference", held, onDevice.rows)
			}
		})
	}
}

// routes notes what a backend's routers chose, and from what.
type routes struct {
	kernels.Backend
	t     *testing.T
	calls []routeCall
	rows  int // of all passes
}

type routeCall struct {
	rows   int
	chosen [][]int32
	scores [][]float32
}

func (r *routes) Route(ids, weights, logits kernels.Tensor, router kernels.Router) {
	r.Backend.Route(ids, weights, logits, router)
	call := routeCall{rows: ids.Rows, chosen: fetch[int32](r.t, r.Backend, ids), scores: fetch[float32](r.t, r.Backend, logits)}
	bias := fetch[float32](r.t, r.Backend, router.Bias)
	for _, row := range call.scores {
		for i, v := range row {
			if router.Sigmoid {
				row[i] = float32(1 / (1 + math.Exp(-float64(v))))
			}
			if len(bias) > 0 {
				row[i] += bias[0][i]
			}
		}
	}
	r.calls = append(r.calls, call)
}

// excused says of each row of the pass that began with call `first` whether its
// experts, or those of a row before it, were others than the reference's.
func (r *routes) excused(reference *routes, first, rows int) []bool {
	excused := make([]bool, rows)
	for c := first; c < len(r.calls); c++ {
		before := slices.Clone(excused)
		for row := range rows {
			mine, want := r.calls[c].chosen[row], reference.calls[c].chosen[row]
			gap := swapGap(mine, want, reference.calls[c].scores[row])
			if gap > bf16Tolerance && !before[row] {
				r.t.Errorf("router %d: row %d goes to %v, want %v, whose scores are %g apart", c, row, mine, want, gap)
			}
			if gap >= 0 {
				for later := row; later < rows; later++ {
					excused[later] = true
				}
			}
		}
	}
	return excused
}

// swapGap is how far apart the scores of the experts are that one list has and the
// other has not, -1 if there are none.
func swapGap(got, want []int32, scores []float32) float64 {
	gap := -1.0
	for _, w := range want {
		for _, g := range got {
			if !slices.Contains(got, w) && !slices.Contains(want, g) {
				gap = max(gap, math.Abs(float64(scores[w]-scores[g])))
			}
		}
	}
	return gap
}

// hold runs the recorded cases. With a reference that ran them before, rows that it
// excuses are not looked at. It returns how many were.
func hold(t *testing.T, b *routes, name string, reference *routes) (held int) {
	t.Helper()
	const tolerance = bf16Tolerance
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
		first := len(b.calls)
		logits := fetch[float32](t, b, m.Logits(m.Forward(&batch).Hidden, nil))
		excused := make([]bool, len(logits))
		if reference != nil {
			excused = b.excused(reference, first, len(logits))
		}
		b.rows += len(logits)
		for p, row := range logits {
			if excused[p] {
				continue
			}
			held++
			if p == len(logits)-1 {
				if err := modeltest.Near(fmt.Sprintf("case %d, last logits", i), row, want.LastLogits, tolerance); err != nil {
					t.Error(err)
				}
			}
			checkChoice(t, fmt.Sprintf("case %d, position %d", i, p), row, want.ArgmaxPerPosition[p], tolerance)
		}
		sequence.Truncate(0)
	}
	return held
}

// checkChoice allows another argmax than the reference's where the logits of the
// two are nearer than twice the tolerance.
func checkChoice(t *testing.T, what string, row []float32, want int32, tolerance float64) {
	t.Helper()
	got := modeltest.Argmax(row)
	if gap := float64(row[got] - row[want]); gap > 2*tolerance*float64(max(row[got], -row[got])) {
		t.Errorf("%s: argmax is %d, want %d, which is %g behind", what, got, want, gap)
	}
}
