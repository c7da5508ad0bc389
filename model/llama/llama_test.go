package llama_test

import (
	"fmt"
	"testing"

	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/kernels/cpu"
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/modeltest"
)

func newCPU() (kernels.Backend, error) { return cpu.New(cpu.Config{}) }

func TestFixturesHoldAtEveryRankCount(t *testing.T) {
	for _, name := range []string{"llama-gqa", "qwen3"} {
		c := modeltest.Open(t, modeltest.Fixture(name))
		var ref modeltest.Reference
		modeltest.ReadJSON(t, modeltest.Fixture(name, "expected.json"), &ref)
		for ranks := 1; ranks <= model.MaxRanks; ranks++ {
			t.Run(fmt.Sprintf("%s/%d", name, ranks), func(t *testing.T) {
				modeltest.HoldReference(t, c, ref, ranks, model.Options{}, 1e-3, newCPU)
			})
		}
	}
}
