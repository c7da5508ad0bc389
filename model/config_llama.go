package model

func parseLlama(f *Fields) Config {
	c := parseCommon(f)
	parseGrouped(f, &c)
	c.Attention.QKVBias = f.Bool("attention_bias", false)
	c.Attention.OutBias = c.Attention.QKVBias
	c.MLPBias = f.Bool("mlp_bias", false)
	return c
}

// parseMistral: sliding_window is null or a size that holds for every layer.
func parseMistral(f *Fields) Config {
	c := parseCommon(f)
	parseGrouped(f, &c)
	sliding := make([]bool, c.Layers)
	for i := range sliding {
		sliding[i] = true
	}
	c.Attention.Windows = windows(f.Int("sliding_window", 0), sliding)
	return c
}
