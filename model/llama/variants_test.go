package llama_test

import (
	"fmt"
	"testing"

	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/modeltest"
)

// base is a small dense model; variants override its fields by coming later.
const base = `"architectures":["%s"],"hidden_act":"silu","hidden_size":96,"intermediate_size":%d,
	"num_hidden_layers":3,"num_attention_heads":%d,"num_key_value_heads":%d,"vocab_size":%d,
	"max_position_embeddings":64,"rms_norm_eps":1e-5,"torch_dtype":"bfloat16"`

func config(architecture string, width, heads, kv, vocab int, extra string) string {
	return "{" + fmt.Sprintf(base, architecture, width, heads, kv, vocab) + extra + "}"
}

func llama(extra string) string { return config("LlamaForCausalLM", 128, 4, 2, 128, extra) }

var everyCount = []int{1, 2, 3, 4, 5, 6, 7, 8}

func TestVariantsHoldTheOracle(t *testing.T) {
	moe := `,"num_experts":6,"num_experts_per_tok":2,"moe_intermediate_size":48,"norm_topk_prob":true,"head_dim":24,"rope_theta":1e6`
	cases := []struct {
		name, config string
		ranks        []int
		options      model.Options
	}{
		{"biases", llama(`,"attention_bias":true,"mlp_bias":true`), everyCount, model.Options{}},
		{"tied, explicit head_dim", llama(`,"tie_word_embeddings":true,"head_dim":16`), []int{1, 3}, model.Options{}},
		{"linear rope", llama(`,"rope_scaling":{"type":"linear","factor":4}`), []int{2}, model.Options{}},
		{"llama3 rope", llama(`,"rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":16}`), []int{2}, model.Options{}},
		{"yarn rope", llama(`,"rope_parameters":{"rope_type":"yarn","rope_theta":1e4,"factor":4,"original_max_position_embeddings":16}`), []int{2}, model.Options{}},
		{"longrope", llama(`,"rope_scaling":{"type":"longrope","original_max_position_embeddings":32,"short_factor":[1,1,1,1,1,1,2,2,3,3,4,4],"long_factor":[9,9,9,9,9,9,9,9,9,9,9,9]}`), []int{2}, model.Options{}},
		{"partial rope", llama(`,"partial_rotary_factor":0.5`), []int{2}, model.Options{}},
		{"six heads", config("LlamaForCausalLM", 264, 6, 2, 1003, ""), everyCount, model.Options{}},
		{"six heads, six kv", config("LlamaForCausalLM", 264, 6, 6, 1003, ""), []int{4, 8}, model.Options{}},
		{"mistral without window", config("MistralForCausalLM", 128, 4, 2, 128, `,"sliding_window":null,"head_dim":32`), []int{2}, model.Options{}},
		{"mistral with window", config("MistralForCausalLM", 128, 4, 2, 128, `,"sliding_window":5`), []int{1, 3}, model.Options{}},
		{"qwen2", config("Qwen2ForCausalLM", 128, 4, 2, 128, `,"use_sliding_window":false,"sliding_window":5`), []int{1, 4, 8}, model.Options{}},
		{"qwen2 with late windows", config("Qwen2ForCausalLM", 128, 4, 2, 128, `,"use_sliding_window":true,"sliding_window":5,"max_window_layers":1`), []int{2}, model.Options{}},
		{"qwen3 with biases", config("Qwen3ForCausalLM", 128, 4, 2, 128, `,"head_dim":16,"attention_bias":true`), []int{1, 8}, model.Options{}},
		{"qwen3-moe", config("Qwen3MoeForCausalLM", 128, 4, 2, 128, moe), everyCount, model.Options{}},
		{"qwen3-moe, whole experts", config("Qwen3MoeForCausalLM", 128, 4, 2, 128, moe), everyCount, model.Options{WholeExperts: true}},
		{"qwen3-moe with windows", config("Qwen3MoeForCausalLM", 128, 4, 2, 128, moe+`,"use_sliding_window":true,"sliding_window":5`), []int{2}, model.Options{}},
		{"qwen3-moe, some dense", config("Qwen3MoeForCausalLM", 128, 4, 2, 128, `,"num_local_experts":4,"num_experts_per_tok":2,"moe_intermediate_size":48,"mlp_only_layers":[1],"decoder_sparse_step":1`), []int{2}, model.Options{}},
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			modeltest.HoldOracle(t, modeltest.Random(t, c.config, uint64(i)), c.ranks, c.options, 1e-3, newCPU)
		})
	}
}
