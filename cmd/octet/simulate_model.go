package main

import (
	"fmt"
	"os"

	"github.com/octet-run/octet/collectives/boxsim"
	"github.com/octet-run/octet/model"
)

// simulatedModel is the model of a published name or of a folder with config.json,
// as what its passes read.
func simulatedModel(name string, ranks int) (boxsim.Model, error) {
	var c model.Config
	var err error
	if info, statErr := os.Stat(name); statErr == nil && info.IsDir() {
		c, err = model.ReadConfig(name)
		name = modelName(name)
	} else {
		c, err = shapeConfig(name)
	}
	if err != nil {
		return boxsim.Model{}, err
	}
	m := boxsim.Model{Name: name, Layers: c.Layers, Hidden: c.Hidden}
	for layer := range c.Layers {
		addAttention(&m, &c, layer, ranks)
		addMLP(&m, &c, layer)
	}
	m.Split += 2 * float64(c.Vocab) * float64(c.Hidden) // the head, bf16
	return m, nil
}

// weightBytes is the size of a linear layer in the scheme of its module.
func weightBytes(c *model.Config, module string, in, out int) float64 {
	n := float64(in) * float64(out)
	switch c.Quant.Of(module) {
	case model.FP8Blocks:
		return n * (1 + 4.0/(128*128))
	case model.INT4Groups:
		return n * (0.5 + 2.0/32)
	}
	return 2 * n
}

func addAttention(m *boxsim.Model, c *model.Config, layer, ranks int) {
	at := func(module string, in, out int) float64 {
		return weightBytes(c, fmt.Sprintf("model.layers.%d.self_attn.%s", layer, module), in, out)
	}
	a := c.Attention
	if l := c.Latent; l != nil {
		queries := a.Heads * (l.Nope + l.Rope)
		if l.QRank > 0 {
			m.Whole += at("q_a_proj", c.Hidden, l.QRank)
			m.Split += at("q_b_proj", l.QRank, queries)
		} else {
			m.Split += at("q_proj", c.Hidden, queries)
		}
		m.Whole += at("kv_a_proj_with_mqa", c.Hidden, l.KVRank+l.Rope)
		m.Split += at("kv_b_proj", l.KVRank, a.Heads*(l.Nope+l.Value))
		m.Split += at("o_proj", a.Heads*l.Value, c.Hidden)
		m.CacheWhole += 2 * float64(l.KVRank+l.Rope)
		return
	}
	copies := max(1, ranks/a.KVHeads) // with fewer key heads than ranks, several hold one
	keys := a.KVHeads * a.HeadDim * copies
	m.Split += at("q_proj", c.Hidden, a.Heads*a.HeadDim) + at("o_proj", a.Heads*a.HeadDim, c.Hidden)
	m.Split += at("k_proj", c.Hidden, keys) + at("v_proj", c.Hidden, keys)
	m.CacheSplit += 2 * 2 * float64(keys)
}

func addMLP(m *boxsim.Model, c *model.Config, layer int) {
	linear := func(module string, width int) float64 {
		name := fmt.Sprintf("model.layers.%d.mlp.%s", layer, module)
		return 3 * weightBytes(c, name+"up_proj", c.Hidden, width)
	}
	if c.MoE == nil || !c.MoE.Sparse[layer] {
		m.Split += linear("", c.Intermediate)
		return
	}
	m.SparseLayers++
	m.Experts, m.TopK = c.MoE.Experts, c.MoE.TopK
	m.Expert = linear("experts.0.", c.MoE.Width)
	m.Split += linear("shared_experts.", c.MoE.Shared)
	m.Whole += 2 * float64(c.MoE.Experts) * float64(c.Hidden) // the router, bf16
}
