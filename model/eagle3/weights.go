package eagle3

import (
	"fmt"
	"strings"

	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/checkpoint"
	"github.com/octet-run/octet/model/layers"
)

// weights is the drafter's tensors.
type weights struct {
	embedding    *layers.Embedding
	inputNorm    kernels.Tensor   // over all captures, or empty
	captureNorms []kernels.Tensor // over each capture, or nil
	fc           kernels.Matrix   // of features [fcLo, fcHi)
	fcLo, fcHi   int
	embedNorm    kernels.Tensor
	hiddenNorm   kernels.Tensor
	mixer        layers.Mixer
	postNorm     kernels.Tensor
	mlp          *layers.MLP
	norm         kernels.Tensor
	head         *layers.Head
	toTarget     []int32 // target token of each draft token; nil when they are the same
}

// Source is where a drafter's weights are. A drafter that ships no embedding or
// head uses its target's.
type Source struct {
	Draft  *checkpoint.Files
	Target *checkpoint.Files
}

// naming resolves the names that exporters use for the same tensor.
type naming struct {
	files *checkpoint.Files
}

// find is the first name whose tensor is there, or the first name.
func (n naming) find(suffix string, names ...string) string {
	for _, name := range names {
		for _, prefix := range []string{"", "model."} {
			if n.files.Has(prefix + name + suffix) {
				return prefix + name
			}
		}
	}
	return names[0]
}

func (n naming) top(name string) string { return n.find(".weight", name) }

// layer is the prefix of the decoder layer's tensors.
func (n naming) layer() string {
	const probe = ".hidden_norm.weight"
	return n.find(probe, "midlayer", "layers.0")
}

// loadWeights takes one rank's part of the drafter.
func loadWeights(src Source, c *Config, target *model.Config, s model.Shard,
	cfg checkpoint.LoadConfig,
) (*weights, checkpoint.Plan, error) {
	loader := src.Draft.NewLoader(cfg)
	w := &layers.Weights{Loader: loader, Quant: c.Quant, Shard: s}
	fromTarget := &layers.Weights{Loader: src.Target.NewLoader(cfg), Quant: target.Quant, Shard: s}
	n := naming{src.Draft}
	layer := n.layer()
	width := len(c.Captures) * c.TargetHidden

	out := &weights{
		embedNorm:  w.Norm(layer+".input_layernorm", c.Hidden),
		hiddenNorm: w.Norm(layer+".hidden_norm", c.Hidden),
		mixer:      loadMixer(w, c, layer+".self_attn"),
		postNorm:   w.Norm(layer+".post_attention_layernorm", c.Hidden),
		mlp:        layers.LoadMLP(w, layer+".mlp", c.Hidden, c.Intermediate, c.MLPBias),
		norm:       w.Norm(n.top("norm"), c.Hidden),
	}
	fc := n.top("fc")
	out.fcLo, out.fcHi = s.SplitWidth(width, c.Quant.Granule(fc))
	out.fc = w.Columns(layers.Linear{Name: fc, Out: c.Hidden, In: width, Bias: loader.Has(fc + ".bias")}, out.fcLo, out.fcHi)
	if c.NormBeforeFC {
		out.inputNorm = w.Norm(n.top("input_norm"), width)
	}
	if c.NormEachCapture {
		for i := range c.Captures {
			out.captureNorms = append(out.captureNorms, w.Norm(n.top(fmt.Sprintf("fc_norm.%d", i)), c.TargetHidden))
		}
	}
	out.embedding = loadEmbedding(w, fromTarget, c, target)
	out.head = loadHead(w, fromTarget, c, target, out.embedding)
	out.toTarget = loadMap(loader, n, c)
	plan, err := loader.Finish(skippable)
	if err == nil {
		_, err = fromTarget.Loader.Finish(func(string) bool { return true })
	}
	return out, plan, err
}

// skippable: the inverse vocabulary map, and buffers.
func skippable(name string) bool {
	return strings.TrimPrefix(name, "model.") == "t2d" || strings.HasSuffix(name, ".rotary_emb.inv_freq")
}

// loadMixer: the drafter's attention is of its own kind, whatever the target's.
func loadMixer(w *layers.Weights, c *Config, name string) layers.Mixer {
	if c.Latent != nil {
		return layers.LoadLatentAttention(w, layers.LatentConfig{
			Name: name, Hidden: c.Hidden, Input: 2 * c.Hidden, Heads: c.Attention.Heads,
			Eps: c.NormEps, Rope: c.Rope, Latent: *c.Latent,
		})
	}
	return layers.LoadAttention(w, layers.AttentionConfig{
		Name: name, Hidden: c.Hidden, Input: 2 * c.Hidden, Eps: c.NormEps, Attention: c.Attention,
	})
}

func loadEmbedding(w, fromTarget *layers.Weights, c *Config, target *model.Config) *layers.Embedding {
	name := naming{w.Loader.Files()}.top("embed_tokens")
	if w.Loader.Has(name + ".weight") {
		return layers.LoadEmbedding(w, name, c.Vocab, c.Hidden)
	}
	return layers.LoadEmbedding(fromTarget, target.TensorPrefix+"model.embed_tokens", c.Vocab, c.Hidden)
}

func loadHead(w, fromTarget *layers.Weights, c *Config, target *model.Config, e *layers.Embedding) *layers.Head {
	name := naming{w.Loader.Files()}.top("lm_head")
	switch {
	case w.Loader.Has(name+".weight") || c.DraftVocab != c.Vocab:
		return layers.LoadHead(w, name, c.DraftVocab, c.Hidden)
	case c.Tied || target.Tied:
		return e.Head()
	}
	return layers.LoadHead(fromTarget, target.TensorPrefix+"lm_head", c.Vocab, c.Hidden)
}

// loadMap reads d2t: target token = draft token + offset.
func loadMap(l *checkpoint.Loader, n naming, c *Config) []int32 {
	name := n.find("", "d2t")
	if !l.Has(name) && c.DraftVocab == c.Vocab {
		return nil
	}
	offsets := l.TakeVector(name, c.DraftVocab, 0, c.DraftVocab, kernels.I64, kernels.I32)
	if offsets.Host == nil {
		return nil
	}
	out := make([]int32, c.DraftVocab)
	for d, offset := range checkpoint.Int64s(offsets) {
		t := int64(d) + offset
		if t < 0 || t >= int64(c.Vocab) {
			l.Fail(&checkpoint.FormatError{
				File: l.Dir(), Tensor: name,
				Expected: fmt.Sprintf("target tokens below %d", c.Vocab),
				Found:    fmt.Sprintf("%d for draft token %d", t, d),
			})
			return nil
		}
		out[d] = int32(t)
	}
	return out
}
