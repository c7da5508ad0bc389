package model

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// A key that is left out has the value that the architecture's published code gives
// it; null is something else.
func TestKeysLeftOutHaveThePublishedDefaults(t *testing.T) {
	const sizes = `"hidden_size":256,"intermediate_size":96,"num_hidden_layers":4,"num_attention_heads":32,"vocab_size":100`
	const experts = `,"num_experts":8,"num_experts_per_tok":2,"moe_intermediate_size":8`
	const latent = `,"kv_lora_rank":8,"qk_nope_head_dim":8,"qk_rope_head_dim":8,"v_head_dim":8,"n_routed_experts":16,"num_experts_per_tok":2,"moe_intermediate_size":8`
	cases := []struct {
		architecture, extra string
		want                string // kv heads, head_dim, positions, windows
	}{
		{"LlamaForCausalLM", "", "32 8 2048 []"},
		{"LlamaForCausalLM", `,"head_dim":null,"num_key_value_heads":null`, "32 8 2048 []"},
		{"MistralForCausalLM", "", "8 8 131072 [4096 4096 4096 4096]"},
		{"MistralForCausalLM", `,"num_key_value_heads":null,"sliding_window":null`, "32 8 131072 []"},
		{"Qwen2ForCausalLM", "", "32 8 32768 []"},
		{"Qwen2ForCausalLM", `,"use_sliding_window":true`, "32 8 32768 []"}, // max_window_layers is 28
		{"Qwen2ForCausalLM", `,"use_sliding_window":true,"max_window_layers":2`, "32 8 32768 [0 0 4096 4096]"},
		{"Qwen3ForCausalLM", "", "32 128 32768 []"},
		{"Qwen3MoeForCausalLM", experts, "4 8 32768 []"},
		{"Qwen3MoeForCausalLM", experts + `,"use_sliding_window":true,"max_window_layers":2`, "4 8 32768 [4096 4096 4096 4096]"},
		{"DeepseekV3ForCausalLM", latent, "1 16 4096 []"},
	}
	for _, c := range cases {
		got, err := parse(`{"architectures":["` + c.architecture + `"],` + sizes + c.extra + "}")
		a := got.Attention
		if text := fmt.Sprint(a.KVHeads, a.HeadDim, got.MaxPositions, a.Windows); err != nil || text != c.want {
			t.Errorf("%s%s: %s (%v), want %s", c.architecture, c.extra, text, err, c.want)
		}
	}
	v3, err := parse(`{"architectures":["DeepseekV3ForCausalLM"],` + sizes + latent + "}")
	if err != nil {
		t.Fatal(err)
	}
	m := v3.MoE
	if got := fmt.Sprint(m.Groups, m.TopGroups, m.Scale, m.Normalize, m.Shared, m.Sparse, v3.Latent.QRank); got !=
		"8 4 2.5 true 8 [false false false true] 1536" {
		t.Errorf("DeepSeek-V3's own values are %s", got)
	}
	null, err := parse(`{"architectures":["DeepseekV3ForCausalLM"],` + sizes + latent +
		`,"n_group":null,"topk_group":null,"n_shared_experts":null,"q_lora_rank":null}`)
	if err != nil || null.MoE.Groups != 1 || null.MoE.TopGroups != 1 || null.MoE.Shared != 0 || null.Latent.QRank != 0 {
		t.Errorf("nulls mean %+v (%v)", null.MoE, err)
	}
}

func TestRopeSectionsAreReadAsPublishedCodeReadsThem(t *testing.T) {
	cases := []struct {
		name, extra string
		holds       func(Config) bool
	}{
		{
			"the original length beside the section comes first", `,"original_max_position_embeddings":64,"rope_scaling":{"type":"yarn","factor":2,"original_max_position_embeddings":32}`,
			func(c Config) bool { return c.Rope.Original == 64 },
		},
		{"without one it is the length", `,"rope_scaling":{"type":"yarn","factor":2}`, func(c Config) bool { return c.Rope.Original == 128 }},
		{"a part of the head, inside", `,"rope_parameters":{"rope_type":"default","partial_rotary_factor":0.5}`, func(c Config) bool { return c.Rope.Dim == 8 }},
		{"a part of the head, outside", `,"partial_rotary_factor":0.5`, func(c Config) bool { return c.Rope.Dim == 8 }},
		{
			"rope_scaling before rope_parameters", `,"rope_scaling":{"type":"linear","factor":2},"rope_parameters":{"rope_type":"linear","factor":3}`,
			func(c Config) bool { return c.Rope.Factor == 2 },
		},
		{
			"an empty rope_scaling is none", `,"rope_scaling":{},"rope_parameters":{"rope_type":"linear","factor":3}`,
			func(c Config) bool { return c.Rope.Factor == 3 },
		},
		{
			"zero rotations are taken as absent", `,"rope_scaling":{"type":"yarn","factor":2,"beta_fast":0,"beta_slow":0}`,
			func(c Config) bool { return c.Rope.BetaFast == 32 && c.Rope.BetaSlow == 1 },
		},
		{"longrope ends where its other factors begin", `,"rope_scaling":{"type":"longrope","original_max_position_embeddings":32,
			"short_factor":[1,1,1,1,2,2,2,2],"long_factor":[1,1,1,1,4,4,4,4]}`, func(c Config) bool {
			plain, got := Rope{Theta: 1e4, Dim: 16}.Frequencies(), c.Rope.Frequencies()
			return c.MaxPositions == 32 && got[3] == plain[3] && got[4] == plain[4]/2 &&
				math.Abs(c.Rope.amplitude()-math.Sqrt(1+math.Log(4)/math.Log(32))) < 1e-12
		}},
	}
	for _, c := range cases {
		if got, err := parse(with("LlamaForCausalLM", c.extra)); err != nil || !c.holds(got) {
			t.Errorf("%s: %+v, up to %d (%v)", c.name, got.Rope, got.MaxPositions, err)
		}
	}
}

// What would change the arithmetic and is not computed is never passed over.
func TestSettingsThatChangeTheArithmeticAreRefused(t *testing.T) {
	packed := func(more, group, weights string) string {
		return `,"quantization_config":{"quant_method":"compressed-tensors","format":"pack-quantized"` + more + `,"config_groups":{"g":{"targets":["Linear"]` +
			group + `,"weights":{"num_bits":4,"type":"int","strategy":"group","group_size":32,"symmetric":true` + weights + `}}}}`
	}
	cases := []struct{ extra, mention string }{
		{packed("", `,"input_activations":{"num_bits":8}`, ""), "config_groups.g.input_activations"},
		{packed("", `,"output_activations":{"num_bits":8}`, ""), "config_groups.g.output_activations"},
		{packed(`,"kv_cache_scheme":{"num_bits":8}`, "", ""), "kv_cache_scheme"},
		{packed(`,"transform_config":{"config_groups":{}}`, "", ""), "transform_config"},
		{packed(`,"sparsity_config":{"format":"sparse-24-bitmask"}`, "", ""), "sparsity_config.format"},
		{packed("", "", `,"actorder":"group"`), "weights.actorder"},
		{packed("", "", `,"dynamic":true`), "weights.dynamic"},
		{`,"quantization_config":{"quant_method":"fp8","weight_block_size":[128,128],"activation_scheme":"static"}`, "activation_scheme"},
		{`,"rope_parameters":{"full_attention":{"rope_type":"default"},"sliding_attention":{"rope_type":"default"}}`, "rope_parameters.full_attention"},
		{`,"rope_scaling":{"type":"longrope","short_factor":[1],"long_factor":[1]}`, "rope_scaling.short_factor"},
		{`,"rope_scaling":{"type":"llama3","factor":2,"low_freq_factor":0}`, "rope_scaling.high_freq_factor"},
		{`,"rope_scaling":{"type":"yarn","factor":2,"beta_fast":-1}`, "rope_scaling.beta_fast"},
	}
	for _, c := range cases {
		if _, err := parse(with("LlamaForCausalLM", c.extra)); err == nil || !strings.Contains(err.Error(), c.mention) {
			t.Errorf("%s: error %v does not mention %s", c.extra, err, c.mention)
		}
	}
	if _, err := parse(with("LlamaForCausalLM", packed(`,"transform_config":{},"sparsity_config":{"format":"dense"}`,
		`,"input_activations":null`, `,"actorder":"weight","dynamic":false`))); err != nil {
		t.Errorf("empty settings are refused: %v", err)
	}
	_, err := parse(with("Qwen2ForCausalLM", `,"layer_types":["full_attention","sliding_attention","full_attention","full_attention"]`))
	if err == nil || !strings.Contains(err.Error(), "layer_types") {
		t.Errorf("layers that slide without a window: %v", err)
	}
}

func TestListsOfIgnoredModulesNameWholeParts(t *testing.T) {
	q := Quant{Method: FP8Blocks, ignore: []string{"mlp.gate", "self_attn", "model.layers.1"}}
	got := []string{}
	for _, module := range []string{
		"model.layers.0.mlp.gate", "model.layers.0.mlp.gate_proj", "model.layers.0.self_attn.q_proj",
		"model.layers.1.mlp.up_proj", "model.layers.10.mlp.up_proj", "language_model.model.layers.1.mlp.up_proj",
	} {
		if q.Of(module) == FP8Blocks {
			got = append(got, module)
		}
	}
	if want := []string{"model.layers.0.mlp.gate_proj", "model.layers.10.mlp.up_proj"}; !slices.Equal(got, want) {
		t.Errorf("quantised are %v, want %v", got, want)
	}
}
