package model

// ParseDrafterLayer reads the decoder layer of an EAGLE-3 drafter: a Llama's, or
// one with multi-head latent attention when it has a kv_lora_rank.
func ParseDrafterLayer(f *Fields) Config {
	if f.Int("kv_lora_rank", 0) == 0 {
		return parseLlama(f)
	}
	c := parseCommon(f, defaults{positions: 2048})
	parseLatent(f, &c)
	c.MLPBias = f.Bool("mlp_bias", false)
	return c
}
