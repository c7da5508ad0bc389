package model

func parseLlama(f *Fields) Config {
	d := defaults{positions: 2048}
	c := parseCommon(f, d)
	parseGrouped(f, &c, d)
	c.Attention.QKVBias = f.Bool("attention_bias", false)
	c.Attention.OutBias = c.Attention.QKVBias
	c.MLPBias = f.Bool("mlp_bias", false)
	return c
}

// parseMistral: sliding_window is null or a size that holds for every layer, 4096
// where the key is left out.
func parseMistral(f *Fields) Config {
	d := defaults{positions: 32 * 4096, kvHeads: 8}
	c := parseCommon(f, d)
	parseGrouped(f, &c, d)
	c.Attention.Windows = everyLayer(windowSize(f), c.Layers)
	return c
}
