package deepseek

import (
	"fmt"

	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/layers"
)

// Load takes one rank's weights of a decoder. Problems are the loader's to report.
func Load(w *layers.Weights, c model.Config, o model.Options) layers.Stack {
	root := c.TensorPrefix + "model."
	s := layers.Stack{
		Config:    c,
		Shard:     w.Shard,
		Embedding: layers.LoadEmbedding(w, root+"embed_tokens", c.Vocab, c.Hidden),
		Layers:    make([]layers.Layer, c.Layers),
		Norm:      w.Norm(root+"norm", c.Hidden),
	}
	for i := range s.Layers {
		s.Layers[i] = loadLayer(w, &c, o, i, fmt.Sprintf("%slayers.%d", root, i))
	}
	if c.Tied {
		s.Head = s.Embedding.Head()
	} else {
		s.Head = layers.LoadHead(w, c.TensorPrefix+"lm_head", c.Vocab, c.Hidden)
	}
	return s
}

func loadLayer(w *layers.Weights, c *model.Config, o model.Options, i int, name string) layers.Layer {
	l := layers.Layer{
		InputNorm: w.Norm(name+".input_layernorm", c.Hidden),
		Mixer: layers.LoadLatentAttention(w, layers.LatentConfig{
			Name: name + ".self_attn", Hidden: c.Hidden, Input: c.Hidden, Heads: c.Attention.Heads,
			Eps: c.NormEps, Rope: c.Rope, Latent: *c.Latent,
		}),
		PostAttentionNorm: w.Norm(name+".post_attention_layernorm", c.Hidden),
	}
	if c.MoE.Sparse[i] {
		l.FeedForward = layers.LoadMoE(w, name+".mlp", c.Hidden, c.MoE, o.WholeExperts)
	} else {
		l.FeedForward = layers.LoadMLP(w, name+".mlp", c.Hidden, c.Intermediate, false)
	}
	return l
}
