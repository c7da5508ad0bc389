package deepseek_test

import (
	"fmt"
	"testing"

	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/modeltest"
)

const base = `"architectures":["DeepseekV3ForCausalLM"],"hidden_act":"silu","hidden_size":%d,"intermediate_size":%d,
	"num_hidden_layers":3,"num_attention_heads":6,"num_key_value_heads":6,"vocab_size":203,"max_position_embeddings":64,
	"rms_norm_eps":1e-6,"torch_dtype":"bfloat16","q_lora_rank":%s,"kv_lora_rank":%d,"qk_nope_head_dim":%d,
	"qk_rope_head_dim":8,"v_head_dim":%d,"n_routed_experts":8,"num_experts_per_tok":3,"moe_intermediate_size":%d,
	"n_group":1,"topk_group":1,"n_shared_experts":%d,"first_k_dense_replace":1,"norm_topk_prob":true,"routed_scaling_factor":2.5,"rope_theta":1e4`

func config(qRank string, extra string) string {
	return "{" + fmt.Sprintf(base, 96, 100, qRank, 24, 16, 12, 40, 1) + extra + "}"
}

// quantised has widths that end inside a 128-block and inside no group of 32.
func quantised(section string) string {
	return "{" + fmt.Sprintf(base, 160, 288, "136", 64, 24, 40, 192, 1) + `,"quantization_config":` + section + "}"
}

const (
	fp8  = `{"quant_method":"fp8","fmt":"e4m3","weight_block_size":[128,128],"activation_scheme":"dynamic"}`
	int4 = `{"quant_method":"compressed-tensors","format":"pack-quantized","ignore":["lm_head","re:.*self_attn.*","re:.*shared_experts.*","re:.*mlp\\.(gate|up|gate_up|down)_proj.*"],
		"config_groups":{"group_0":{"targets":["Linear"],"weights":{"num_bits":4,"type":"int","symmetric":true,"group_size":32,"strategy":"group"}}}}`
	yarn = `,"rope_scaling":{"type":"yarn","factor":8,"original_max_position_embeddings":16,"beta_fast":32,"beta_slow":1,"mscale":1.0,"mscale_all_dim":0.7}`
)

var everyCount = []int{1, 2, 3, 4, 5, 6, 7, 8}

func TestVariantsHoldTheOracle(t *testing.T) {
	cases := []struct {
		name, config string
		ranks        []int
		whole        bool
	}{
		{"direct queries", config("null", ""), everyCount, false},
		{"low-rank queries and biases", config("32", `,"attention_bias":true`), []int{1, 4, 8}, false},
		{"yarn with two scales", config("32", yarn), []int{3}, false},
		{"expert groups", config("32", `,"n_group":4,"topk_group":2`), []int{1, 5}, false},
		{"no shared experts", config("32", `,"n_shared_experts":0`), []int{2, 8}, false},
		{"weights not normalised", config("32", `,"norm_topk_prob":false`), []int{2}, false},
		{"fp8", quantised(fp8), everyCount, false},
		{"fp8, whole experts", quantised(fp8), []int{3, 8}, true},
		{"int4", quantised(int4), everyCount, false},
		{"int4, whole experts", quantised(int4), []int{3, 8}, true},
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			modeltest.HoldOracle(t, modeltest.Random(t, c.config, uint64(i)), c.ranks, model.Options{WholeExperts: c.whole}, 1e-3, newCPU)
		})
	}
}
