package model

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
)

const small = `"hidden_act":"silu","hidden_size":64,"intermediate_size":96,"num_hidden_layers":4,
	"num_attention_heads":4,"num_key_value_heads":2,"vocab_size":100,"max_position_embeddings":128,"rms_norm_eps":1e-5`

func parse(text string) (Config, error) {
	f, err := ParseFields("config.json", []byte(text))
	if err != nil {
		return Config{}, err
	}
	return ParseConfig(f)
}

func with(architecture, extra string) string {
	return fmt.Sprintf(`{"architectures":["%s"],%s%s}`, architecture, small, extra)
}

func TestRefusalsNameFieldAndValue(t *testing.T) {
	llama := func(extra string) string { return with("LlamaForCausalLM", extra) }
	cases := []struct{ name, text, mention string }{
		{"not JSON", "hello", "not a JSON object"},
		{"null", "null", "found null"},
		{"no architecture", "{}", "field architectures is missing"},
		{"unknown architecture", with("GPT2LMHeadModel", ""), `field architectures is ["GPT2LMHeadModel"]`},
		{"missing size", `{"architectures":["LlamaForCausalLM"]}`, "field num_hidden_layers is missing"},
		{"wrong type", llama(`,"hidden_size":"big"`), `field hidden_size is "big": expected an integer`},
		{"fraction", llama(`,"hidden_size":1.5`), "field hidden_size is 1.5"},
		{"negative", llama(`,"vocab_size":-1`), "field vocab_size is -1"},
		{"absurd", llama(`,"num_hidden_layers":1000000`), "field num_hidden_layers is 1000000"},
		{"activation", llama(`,"hidden_act":"gelu"`), `field hidden_act is "gelu": supported are silu`},
		{"dtype", llama(`,"torch_dtype":"float8"`), `field torch_dtype is "float8"`},
		{"heads", llama(`,"num_key_value_heads":3`), "field num_key_value_heads is 3"},
		{"odd head", llama(`,"head_dim":15`), "field head_dim is 15"},
		{"rope type, old", llama(`,"rope_scaling":{"type":"su","factor":2}`), `field rope_scaling.type is "su"`},
		{"no rope type", llama(`,"rope_scaling":{"factor":2}`), "field rope_scaling.type is missing"},
		{"no rope factor", llama(`,"rope_scaling":{"type":"linear"}`), "field rope_scaling.factor is missing"},
		{"no positions", llama(`,"max_position_embeddings":0`), "field max_position_embeddings is 0"},
		{"negative epsilon", llama(`,"rms_norm_eps":-1`), "field rms_norm_eps is -1"},
		{"rope type, new", llama(`,"rope_parameters":{"rope_type":"proportional"}`), `field rope_parameters.rope_type is "proportional"`},
		{"rope factor", llama(`,"rope_scaling":{"type":"linear","factor":0}`), "field rope_scaling.factor is 0"},
		{"quantisation", llama(`,"quantization_config":{"quant_method":"gptq"}`), `field quantization_config.quant_method is "gptq"`},
		{"fp8 block", llama(`,"quantization_config":{"quant_method":"fp8","weight_block_size":[64,64]}`), "weight_block_size is [64,64]"},
		{"packed format", llama(`,"quantization_config":{"quant_method":"compressed-tensors","format":"nvfp4"}`), `quantization_config.format is "nvfp4"`},
		{
			"packed bits", llama(`,"quantization_config":{"quant_method":"compressed-tensors","format":"pack-quantized",
			"config_groups":{"g":{"targets":["Linear"],"weights":{"num_bits":8,"type":"int","strategy":"group","group_size":32,"symmetric":true}}}}`),
			"quantization_config.config_groups.g.weights.num_bits is 8",
		},
		{
			"bad pattern", llama(`,"quantization_config":{"quant_method":"compressed-tensors","format":"pack-quantized","ignore":["re:("],
			"config_groups":{"g":{"targets":["Linear"],"weights":{"num_bits":4,"type":"int","strategy":"group","group_size":32,"symmetric":true}}}}`),
			"quantization_config.ignore",
		},
		{"layer types", with("Qwen3ForCausalLM", `,"use_sliding_window":true,"layer_types":["full_attention"]`), "expected one entry a layer"},
		{"experts", with("Qwen3MoeForCausalLM", `,"num_experts":2,"num_experts_per_tok":4,"moe_intermediate_size":8`), "field num_experts_per_tok is 4"},
		{"end token", llama(`,"eos_token_id":100`), "field eos_token_id is 100: expected token ids from 0 to 99"},
		{"one of the end tokens", llama(`,"eos_token_id":[1,-2]`), "field eos_token_id is [1,-2]"},
		{"no text model", `{"architectures":["KimiK25ForConditionalGeneration"]}`, "field text_config is missing"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := parse(c.text)
			var config *ConfigError
			if !errors.As(err, &config) || !strings.Contains(err.Error(), c.mention) || !strings.Contains(err.Error(), "config.json") {
				t.Errorf("error %v does not mention %q", err, c.mention)
			}
		})
	}
}

func TestRopeOfPublishedFiles(t *testing.T) {
	cases := []struct {
		section string
		kind    string
		factor  float64
	}{
		{`{"rope_type":"default","rope_theta":1e4}`, "default", 1},
		{`{"rope_theta":1e4}`, "default", 1},
		{`{"type":"dynamic","factor":2}`, "default", 2}, // up to max_position_embeddings
		{`{"type":"yarn","factor":null,"original_max_position_embeddings":32}`, "yarn", 4},
	}
	for _, c := range cases {
		got, err := parse(with("LlamaForCausalLM", `,"rope_scaling":`+c.section))
		if err != nil || got.Rope.Type != c.kind || got.Rope.Factor != c.factor {
			t.Errorf("%s: type %s, factor %v, error %v", c.section, got.Rope.Type, got.Rope.Factor, err)
		}
	}
}

func TestBothDialectsSayTheSame(t *testing.T) {
	old := with("LlamaForCausalLM", `,"torch_dtype":"bfloat16","rope_theta":5e5,"rope_scaling":{"type":"yarn","factor":4,"original_max_position_embeddings":32}`)
	newer := with("LlamaForCausalLM", `,"dtype":"bfloat16","rope_parameters":{"rope_type":"yarn","rope_theta":5e5,"factor":4,"original_max_position_embeddings":32}`)
	a, errA := parse(old)
	b, errB := parse(newer)
	if errA != nil || errB != nil || !reflect.DeepEqual(a.Rope, b.Rope) || a.Rope.Type != "yarn" || a.Rope.Theta != 5e5 {
		t.Errorf("%+v (%v) is not %+v (%v)", a.Rope, errA, b.Rope, errB)
	}
}

func TestEndTokensAreOneOrSeveral(t *testing.T) {
	one, _ := parse(with("LlamaForCausalLM", `,"eos_token_id":7`))
	two, _ := parse(with("LlamaForCausalLM", `,"eos_token_id":[7,8],"bos_token_id":1`))
	if fmt.Sprint(one.EOS, one.BOS, two.EOS, two.BOS) != "[7] -1 [7 8] 1" {
		t.Errorf("ends are %v (begin %d) and %v (begin %d)", one.EOS, one.BOS, two.EOS, two.BOS)
	}
}

func TestIgnoredModulesAreNotQuantised(t *testing.T) {
	c, err := parse(with("LlamaForCausalLM", `,"quantization_config":{"quant_method":"compressed-tensors","format":"pack-quantized",
		"ignore":["lm_head","model.layers.0","re:.*self_attn.*","re:.*mlp\\.(gate|up|gate_up|down)_proj.*"],
		"config_groups":{"g":{"targets":["Linear"],"weights":{"num_bits":4,"type":"int","strategy":"group","group_size":32,"symmetric":true}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for module, want := range map[string]QuantMethod{
		"lm_head": NoQuant, "language_model.lm_head": NoQuant, "model.layers.0.mlp.experts.1.up_proj": NoQuant,
		"model.layers.1.self_attn.q_proj": NoQuant, "model.layers.1.mlp.gate_proj": NoQuant,
		"model.layers.10.mlp.experts.1.gate_proj": INT4Groups, "model.layers.01.mlp.x": INT4Groups,
	} {
		if got := c.Quant.Of(module); got != want {
			t.Errorf("%s has scheme %d, want %d", module, got, want)
		}
	}
}

func TestCacheValuesFollowTheShard(t *testing.T) {
	grouped := Config{Layers: 3, Attention: Attention{Heads: 8, KVHeads: 2, HeadDim: 16}}
	latent := Config{Layers: 3, Attention: Attention{Heads: 8}, Latent: &Latent{KVRank: 32, Rope: 8}}
	for _, c := range []struct {
		config Config
		shard  Shard
		want   int
	}{
		{grouped, Shard{0, 1}, 3 * 2 * 2 * 16},
		{grouped, Shard{1, 3}, 3 * 2 * 2 * 16}, // heads 2 to 5 need both
		{grouped, Shard{7, 8}, 3 * 2 * 1 * 16},
		{latent, Shard{7, 8}, 3 * 40},
	} {
		if got := c.config.CacheValues(c.shard); got != c.want {
			t.Errorf("rank %d of %d caches %d values a position, want %d", c.shard.Rank, c.shard.Ranks, got, c.want)
		}
	}
}

func TestSkippableTensors(t *testing.T) {
	c := Config{Layers: 61, Latent: &Latent{}, TensorPrefix: "language_model."}
	dense := Config{Layers: 2, Tied: true}
	for _, name := range []string{
		"vision_tower.blocks.0.weight", "mm_projector.proj.weight", "language_model.model.layers.61.eh_proj.weight",
		"language_model.model.layers.3.self_attn.rotary_emb.inv_freq",
	} {
		if !c.Skippable(name) {
			t.Errorf("%s is not skippable", name)
		}
	}
	for _, name := range []string{"language_model.model.layers.60.x.weight", "model.layers.61.x.weight", "language_model.model.layers..x", "surprise"} {
		if c.Skippable(name) {
			t.Errorf("%s is skippable", name)
		}
	}
	if !dense.Skippable("lm_head.weight") || dense.Skippable("model.layers.2.mlp.up_proj.weight") {
		t.Error("a tied head is skippable, a layer too many is not")
	}
}

// TestScaledFrequencies compares with values worked out by hand from the
// published formulas.
func TestScaledFrequencies(t *testing.T) {
	llama3 := Rope{Type: "llama3", Theta: 5e5, Dim: 128, Factor: 8, LowFreq: 1, HighFreq: 4, Original: 8192}
	plain := Rope{Theta: 5e5, Dim: 128}.Frequencies()
	got := llama3.Frequencies()
	for i, f := range plain {
		wavelength := 2 * math.Pi / f
		if wavelength < 2048 && got[i] != f || wavelength > 8192 && got[i] != f/8 {
			t.Errorf("llama3: pair %d of wavelength %g goes from %g to %g", i, wavelength, f, got[i])
		}
		if wavelength > 2048 && wavelength < 8192 && (got[i] >= f || got[i] <= f/8) {
			t.Errorf("llama3: pair %d is not between: %g of %g", i, got[i], f)
		}
	}
	yarn := Rope{Type: "yarn", Theta: 1e4, Dim: 64, Factor: 40, Original: 4096, BetaFast: 32, BetaSlow: 1}
	plain, got = Rope{Theta: 1e4, Dim: 64}.Frequencies(), yarn.Frequencies()
	// 64 ln(4096 / 64 pi) / 2 ln 1e4 = 10.5 and 64 ln(4096 / 2 pi) / 2 ln 1e4 = 22.5: the ramp is from 10 to 23.
	for i, f := range plain {
		want := f
		switch {
		case i >= 23:
			want = f / 40
		case i > 10:
			ramp := float64(i-10) / 13
			want = f/40*ramp + f*(1-ramp)
		}
		if math.Abs(got[i]-want) > 1e-12 {
			t.Errorf("yarn: pair %d is %g, want %g", i, got[i], want)
		}
	}
}

func TestYarnAmplitudes(t *testing.T) {
	yarn := Rope{Type: "yarn", Factor: 40}
	for _, c := range []struct {
		mscale, all, given, want float64
	}{
		{0, 0, 0, 0.1*math.Log(40) + 1},
		{1, 1, 0, 1},
		{0.707, 0, 0, 0.1*math.Log(40) + 1},
		{0.5, 1, 0, (0.05*math.Log(40) + 1) / (0.1*math.Log(40) + 1)},
		{1, 1, 1.25, 1.25},
	} {
		yarn.MScale, yarn.MScaleAllDim, yarn.Amplitude = c.mscale, c.all, c.given
		if got := yarn.amplitude(); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%+v: amplitude %g, want %g", c, got, c.want)
		}
	}
}

func FuzzConfig(f *testing.F) {
	f.Add(with("LlamaForCausalLM", ""))
	f.Add(with("DeepseekV3ForCausalLM", `,"kv_lora_rank":8,"qk_nope_head_dim":8,"qk_rope_head_dim":8,"v_head_dim":8,"n_routed_experts":4,"num_experts_per_tok":2,"moe_intermediate_size":8`))
	f.Add(with("Qwen3MoeForCausalLM", `,"num_experts":4,"num_experts_per_tok":2,"moe_intermediate_size":8`))
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parse(text)
		if err != nil {
			return
		}
		if c.Layers < 1 || c.Hidden < 1 || c.Rope.Dim < 2 || c.Attention.Heads < 1 {
			t.Errorf("accepted %+v", c)
		}
	})
}
