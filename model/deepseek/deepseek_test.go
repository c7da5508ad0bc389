package deepseek_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/kernels/cpu"
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/modeltest"
)

func newCPU() (kernels.Backend, error) { return cpu.New(cpu.Config{}) }

func TestFixturesHoldAtEveryRankCount(t *testing.T) {
	// The INT4 reference does not round dequantised products; nor does the CPU.
	for _, name := range []string{"deepseek-v3-kimi", "kimi-k25-int4"} {
		c := modeltest.Open(t, modeltest.Fixture(name))
		var ref modeltest.Reference
		modeltest.ReadJSON(t, modeltest.Fixture(name, "expected.json"), &ref)
		for _, whole := range []bool{false, true} {
			for ranks := 1; ranks <= model.MaxRanks; ranks++ {
				if whole && ranks != 3 && ranks != 8 {
					continue // 16 experts over 3 ranks are uneven, over 8 even
				}
				t.Run(fmt.Sprintf("%s/whole=%v/%d", name, whole, ranks), func(t *testing.T) {
					modeltest.HoldReference(t, c, ref, ranks, model.Options{WholeExperts: whole}, 1e-3, newCPU)
				})
			}
		}
	}
}

// TestLegacyConfigurationGivesTheSameModel reads the other dialect's file.
func TestLegacyConfigurationGivesTheSameModel(t *testing.T) {
	dir := modeltest.Fixture("deepseek-v3-kimi")
	data, err := os.ReadFile(filepath.Join(dir, "config.legacy.json"))
	if err != nil {
		t.Fatal(err)
	}
	fields, err := model.ParseFields("config.legacy.json", data)
	if err != nil {
		t.Fatal(err)
	}
	c := modeltest.Open(t, dir)
	if c.Config, err = model.ParseConfig(fields); err != nil {
		t.Fatal(err)
	}
	var ref modeltest.Reference
	modeltest.ReadJSON(t, filepath.Join(dir, "expected.json"), &ref)
	modeltest.HoldReference(t, c, ref, 2, model.Options{}, 1e-3, newCPU)
}
