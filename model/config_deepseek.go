package model

import "maps"

// parseDeepSeek: DeepSeek-V3 and Kimi-K2, which differ in numbers alone.
func parseDeepSeek(f *Fields) Config {
	c := parseCommon(f, defaults{positions: 4096})
	parseLatent(f, &c)
	c.MoE = parseDeepSeekExperts(f, c.Layers)
	return c
}

// parseLatent adds multi-head latent attention and its rotary embedding.
func parseLatent(f *Fields, c *Config) {
	c.Attention.Heads = f.Count("num_attention_heads")
	c.Attention.KVHeads = 1
	c.Latent = &Latent{
		QRank:  f.IntOr("q_lora_rank", 1536, 0),
		KVRank: f.Count("kv_lora_rank"),
		Nope:   f.Count("qk_nope_head_dim"),
		Rope:   f.Count("qk_rope_head_dim"),
		Value:  f.Count("v_head_dim"),
		Bias:   f.Bool("attention_bias", false),
	}
	c.Attention.HeadDim = c.Latent.Nope + c.Latent.Rope
	if c.Latent.Rope%2 != 0 {
		f.Fail("qk_rope_head_dim", "expected an even number")
		c.Latent.Rope = 2
	}
	c.setRope(f, c.Latent.Rope)
	c.Rope.Interleaved = f.Bool("rope_interleave", true)
}

// parseDeepSeekExperts: a key that is left out has DeepSeek-V3's own value.
func parseDeepSeekExperts(f *Fields, layers int) *MoE {
	m := &MoE{
		Experts:   f.Count("n_routed_experts"),
		TopK:      f.Count("num_experts_per_tok"),
		Width:     f.Count("moe_intermediate_size"),
		Sigmoid:   true,
		Bias:      true,
		Groups:    f.IntOr("n_group", 8, 1),
		TopGroups: f.IntOr("topk_group", 4, 1),
		Normalize: f.Bool("norm_topk_prob", true),
		Scale:     float32(f.Float("routed_scaling_factor", 2.5)),
		Sparse:    make([]bool, layers),
	}
	f.OneOf("scoring_func", "sigmoid", "sigmoid")
	f.OneOf("topk_method", "noaux_tc", "noaux_tc")
	m.Shared = f.IntOr("n_shared_experts", 1, 0) * m.Width
	checkExperts(f, m, "n_routed_experts")
	if m.Groups < 1 || m.Experts%m.Groups != 0 {
		f.Fail("n_group", "expected a divisor of n_routed_experts")
		m.Groups = 1
	}
	if m.TopGroups < 1 || m.TopGroups > m.Groups {
		f.Fail("topk_group", "expected 1 to n_group")
		m.TopGroups = 1
	}
	if m.TopK > m.TopGroups*(m.Experts/m.Groups) {
		f.Fail("num_experts_per_tok", "expected at most the experts of topk_group groups")
	}
	first, frequency := f.Int("first_k_dense_replace", 3), f.Int("moe_layer_freq", 1)
	if frequency < 1 {
		f.Fail("moe_layer_freq", "expected a positive integer")
		frequency = 1
	}
	for i := range m.Sparse {
		m.Sparse[i] = i >= first && i%frequency == 0
	}
	return m
}

// parseKimiK25 reads the language model in text_config; vision is not loaded.
// Older exports keep quantization_config beside text_config.
func parseKimiK25(f *Fields) Config {
	text := f.Object("text_config")
	if text == nil {
		f.Fail("text_config", "expected the language model's fields")
		return Config{}
	}
	if !text.Has("quantization_config") && f.Has("quantization_config") {
		text.raw = maps.Clone(text.raw)
		text.raw["quantization_config"] = f.raw["quantization_config"]
	}
	text.OneOf("model_type", "", "kimi_k2", "deepseek_v3")
	c := parseDeepSeek(text)
	c.TensorPrefix = "language_model."
	if eos := readEOS(f, c.Vocab); eos != nil {
		c.EOS = eos
	}
	return c
}
