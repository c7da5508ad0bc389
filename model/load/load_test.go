package load_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/checkpoint"
	"github.com/octet-run/octet/model/load"
	"github.com/octet-run/octet/model/modeltest"
	"github.com/octet-run/octet/model/shapes"
)

// TestPlansOfAllRanksMakeTheWholeModel: no weight is lost at any rank count.
func TestPlansOfAllRanksMakeTheWholeModel(t *testing.T) {
	for _, name := range []string{"llama-gqa", "qwen3", "deepseek-v3-kimi", "kimi-k25-int4"} {
		c := modeltest.Open(t, modeltest.Fixture(name))
		for _, whole := range []bool{false, true} {
			for ranks := 1; ranks <= model.MaxRanks; ranks++ {
				covered := map[string][]bool{}
				for r := range ranks {
					plan, err := load.Plan(c.Files, c.Config, model.Shard{Rank: r, Ranks: ranks}, model.Options{WholeExperts: whole})
					if err != nil {
						t.Fatal(err)
					}
					for _, s := range plan.Slices {
						mark(covered, s)
					}
				}
				for tensor, parts := range covered {
					for i, ok := range parts {
						if !ok {
							t.Fatalf("%s over %d ranks: nobody has part %d of %s", name, ranks, i, tensor)
						}
					}
				}
				for _, tensor := range c.Files.Names() {
					if covered[tensor] == nil && !c.Config.Skippable(tensor) {
						t.Fatalf("%s over %d ranks: nobody has %s", name, ranks, tensor)
					}
				}
			}
		}
	}
}

// mark notes the rows or columns of a tensor that a slice covers.
func mark(covered map[string][]bool, s checkpoint.Slice) {
	n := s.Rows
	if s.Axis == checkpoint.ByColumns {
		n = s.Cols
	}
	if covered[s.Tensor] == nil {
		covered[s.Tensor] = make([]bool, n)
	}
	for i := s.Lo; i < s.Hi; i++ {
		covered[s.Tensor][i] = true
	}
}

// TestPublishedShapesFitTheirMachines plans models nobody here can store.
func TestPublishedShapesFitTheirMachines(t *testing.T) {
	gigabytes := map[string][2]float64{ // of rank 1 of 8
		"llama-3-8b": {1.9, 2.2}, "llama-3-70b": {17, 18.5}, "qwen3-235b": {58, 62},
		"deepseek-v3": {82, 88}, "kimi-k2": {125, 135}, "kimi-k2.5": {70, 80},
	}
	for _, name := range shapes.Names() {
		text, err := shapes.Config(name)
		if err != nil {
			t.Fatal(err)
		}
		fields, err := model.ParseFields(name, text)
		if err != nil {
			t.Fatal(err)
		}
		c, err := model.ParseConfig(fields)
		if err != nil {
			t.Fatal(err)
		}
		files := checkpoint.Synthetic(1)
		plan, err := load.Plan(files, c, model.Shard{Rank: 1, Ranks: 8}, model.Options{})
		files.Close()
		if err != nil {
			t.Fatal(err)
		}
		size := float64(plan.Bytes()) / 1e9
		if want, known := gigabytes[name]; known && (size < want[0] || size > want[1]) {
			t.Errorf("%s: a rank of eight holds %.1f GB, want %v", name, size, want)
		}
	}
}

// without is a checkpoint's plan with one tensor changed.
func without(t *testing.T, edit func(*checkpoint.Plan)) (*checkpoint.Files, model.Config) {
	t.Helper()
	const config = `{"architectures":["DeepseekV3ForCausalLM"],"hidden_size":32,"intermediate_size":32,"num_hidden_layers":2,
		"num_attention_heads":2,"vocab_size":20,"kv_lora_rank":8,"qk_nope_head_dim":8,"qk_rope_head_dim":8,"v_head_dim":8,
		"n_routed_experts":4,"num_experts_per_tok":2,"moe_intermediate_size":8,"first_k_dense_replace":1,
		"n_group":1,"topk_group":1,"n_shared_experts":0}`
	c := modeltest.Random(t, config, 1).Config
	synthetic := checkpoint.Synthetic(1)
	defer synthetic.Close()
	plan, err := load.Plan(synthetic, c, model.Shard{Rank: 0, Ranks: 1}, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	edit(&plan)
	files, err := checkpoint.OpenBytes("edited", modeltest.Pack(plan, 1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { files.Close() })
	return files, c
}

func TestWrongCheckpointsAreNamed(t *testing.T) {
	const tensor = "model.layers.1.mlp.experts.2.up_proj.weight"
	find := func(p *checkpoint.Plan) *checkpoint.Slice {
		for i := range p.Slices {
			if p.Slices[i].Tensor == tensor {
				return &p.Slices[i]
			}
		}
		panic("no such slice")
	}
	extra := func(name string) func(*checkpoint.Plan) {
		return func(p *checkpoint.Plan) {
			p.Slices = append(p.Slices, checkpoint.Slice{Tensor: name, DType: kernels.BF16, Rows: 2, Cols: 2})
		}
	}
	cases := []struct {
		name    string
		edit    func(*checkpoint.Plan)
		mention string // "" for a checkpoint that is fine
	}{
		{"missing", func(p *checkpoint.Plan) { find(p).Tensor = "vision_tower.x" }, "no such tensor"},
		{"mis-shaped", func(p *checkpoint.Plan) { find(p).Rows = 7 }, "expected shape [8, 32], found [7, 32]"},
		{"wrong type", func(p *checkpoint.Plan) { find(p).DType = kernels.F8E4M3 }, "found F8_E4M3"},
		{"extra", extra("model.layers.1.mlp.experts.4.up_proj.weight"), "no tensor of that name in this architecture"},
		{"layer of multi-token prediction", extra("model.layers.2.eh_proj.weight"), ""},
	}
	for _, c := range cases {
		for ranks := 1; ranks <= 3; ranks++ {
			t.Run(fmt.Sprintf("%s/%d", c.name, ranks), func(t *testing.T) {
				files, config := without(t, c.edit)
				_, err := load.Plan(files, config, model.Shard{Rank: ranks - 1, Ranks: ranks}, model.Options{})
				var format *checkpoint.FormatError
				switch {
				case c.mention == "" && err != nil:
					t.Errorf("refused: %v", err)
				case c.mention != "" && (!errors.As(err, &format) || !strings.Contains(err.Error(), c.mention)):
					t.Errorf("error %v does not mention %q", err, c.mention)
				}
			})
		}
	}
}

func TestRankCountsNobodyHasAreRefusedBeforeReading(t *testing.T) {
	c := modeltest.Open(t, modeltest.Fixture("llama-gqa"))
	if _, err := load.Plan(c.Files, c.Config, model.Shard{Rank: 0, Ranks: 9}, model.Options{}); err == nil {
		t.Error("nine ranks are accepted")
	}
}
