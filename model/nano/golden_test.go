package nano_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/kernels/cpu"
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/eagle3"
	"github.com/octet-run/octet/model/modeltest"
	"github.com/octet-run/octet/model/nano"
)

// golden is testdata/expected.json, as far as the target alone is concerned.
type golden struct {
	Captured []int `json:"captured_layer_inputs"`
	Cases    []struct {
		modeltest.Case
		Greedy []int32 `json:"greedy_96"`
	}
}

// logitTolerance is for float32 sums in another order, as a share of the largest logit.
const logitTolerance = 1e-3

// TestTargetReproducesTheReference holds the runtime to what transformers computed,
// with the experts split by width and by whole experts.
func TestTargetReproducesTheReference(t *testing.T) {
	pair, err := nano.Unpack(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var want golden
	modeltest.ReadJSON(t, filepath.Join("testdata", "expected.json"), &want)
	var ref modeltest.Reference
	for _, c := range want.Cases {
		if c.LastLogits != nil {
			c.Greedy24 = c.Greedy[:24]
			ref.Cases = append(ref.Cases, c.Case)
		}
	}
	if len(ref.Cases) == 0 {
		t.Fatal("no recorded case has logits")
	}
	checkpoint := modeltest.Open(t, pair.Target)
	for _, ranks := range []int{1, 3, 8} {
		for _, whole := range []bool{false, true} {
			t.Run(fmt.Sprintf("ranks=%d,whole=%t", ranks, whole), func(t *testing.T) {
				modeltest.HoldReference(t, checkpoint, ref, ranks, model.Options{WholeExperts: whole}, logitTolerance, newCPU)
			})
		}
	}
}

// TestDrafterReadsTheLayersItWasTrainedOn: off by one still works, only worse.
func TestDrafterReadsTheLayersItWasTrainedOn(t *testing.T) {
	pair, err := nano.Unpack(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	target, err := model.ReadConfig(pair.Target)
	if err != nil {
		t.Fatal(err)
	}
	draft, err := eagle3.ReadConfig(pair.Draft, &target, nil)
	if err != nil {
		t.Fatal(err)
	}
	var want golden
	modeltest.ReadJSON(t, filepath.Join("testdata", "expected.json"), &want)
	if got := fmt.Sprint(draft.Captures); got != fmt.Sprint(want.Captured) {
		t.Errorf("the drafter reads layers %s, trained on %v", got, want.Captured)
	}
}

func newCPU() (kernels.Backend, error) { return cpu.New(cpu.Config{}) }
