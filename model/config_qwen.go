package model

import "slices"

// parseQwen2: bias on q, k and v; the layers from max_window_layers on slide,
// when use_sliding_window says so.
func parseQwen2(f *Fields) Config {
	d := defaults{positions: 32768, kvHeads: 32}
	c := parseCommon(f, d)
	parseGrouped(f, &c, d)
	c.Attention.QKVBias = true
	c.Attention.Windows = qwenWindows(f, c.Layers)
	return c
}

// parseQwen3: RMSNorm over every query and key head, which are 128 wide where the
// file does not say.
func parseQwen3(f *Fields) Config {
	c := parseNormedHeads(f, defaults{positions: 32768, kvHeads: 32, headDim: 128})
	c.Attention.Windows = qwenWindows(f, c.Layers)
	return c
}

func parseNormedHeads(f *Fields, d defaults) Config {
	c := parseCommon(f, d)
	parseGrouped(f, &c, d)
	c.Attention.QKNorm = true
	c.Attention.QKVBias = f.Bool("attention_bias", false)
	c.Attention.OutBias = c.Attention.QKVBias
	return c
}

func qwenWindows(f *Fields, layers int) []int {
	sliding := slidingLayers(f, layers)
	if !f.Bool("use_sliding_window", false) {
		if slices.Contains(sliding, true) {
			f.Fail("layer_types", "a layer slides, and use_sliding_window is false")
		}
		return nil
	}
	if sliding == nil {
		sliding = make([]bool, layers)
		for i := range sliding {
			sliding[i] = i >= f.Int("max_window_layers", 28)
		}
	}
	return windows(windowSize(f), sliding)
}

// parseQwen3MoE: softmax router; mlp_only_layers and decoder_sparse_step name
// the dense layers; the number of experts has two names. When windows are used,
// every layer slides.
func parseQwen3MoE(f *Fields) Config {
	c := parseNormedHeads(f, defaults{positions: 32768, kvHeads: 4})
	if f.Bool("use_sliding_window", false) {
		c.Attention.Windows = everyLayer(windowSize(f), c.Layers)
	}
	experts := "num_experts"
	if !f.Has(experts) && f.Has("num_local_experts") {
		experts = "num_local_experts"
	}
	c.MoE = &MoE{
		Experts:   f.Count(experts),
		TopK:      f.Count("num_experts_per_tok"),
		Width:     f.Count("moe_intermediate_size"),
		Normalize: f.Bool("norm_topk_prob", false),
		Scale:     1,
		Sparse:    make([]bool, c.Layers),
	}
	dense := f.Ints("mlp_only_layers")
	step := f.Int("decoder_sparse_step", 1)
	for i := range c.MoE.Sparse {
		c.MoE.Sparse[i] = !slices.Contains(dense, i) && step > 0 && (i+1)%step == 0
	}
	checkExperts(f, c.MoE, experts)
	return c
}

// maxExperts bounds what the loader builds; the largest published model has 384.
const maxExperts = 4096

func checkExperts(f *Fields, m *MoE, experts string) {
	if m.Experts > maxExperts {
		f.Fail(experts, "expected at most 4096 experts")
		m.Experts = 1
	}
	if m.TopK > m.Experts {
		f.Fail("num_experts_per_tok", "expected at most the number of experts")
		m.TopK = 1
	}
}
