package model

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
)

// Config is what a checkpoint's config.json says about its language model, in
// one form for every dialect and architecture.
type Config struct {
	Architecture string // as it stands in the file
	TensorPrefix string // what precedes "model." and "lm_head" in tensor names

	Layers       int
	Hidden       int
	Intermediate int // width of a dense MLP
	Vocab        int
	MaxPositions int
	NormEps      float32
	Tied         bool // the head is the embedding table
	MLPBias      bool

	Attention Attention
	Latent    *Latent // multi-head latent attention; nil for grouped-query attention
	MoE       *MoE    // nil for dense models
	Rope      Rope
	Quant     Quant

	EOS []int32 // tokens that end a text
	BOS int32   // -1 for none
}

// Attention describes grouped-query attention. Heads holds for latent attention too.
type Attention struct {
	Heads   int
	KVHeads int
	HeadDim int
	QKVBias bool
	OutBias bool
	QKNorm  bool  // RMSNorm of every query and key head before RoPE
	Windows []int // per layer, 0 for none; nil when no layer has one
}

// Window is the sliding window of a layer, 0 for none.
func (a Attention) Window(layer int) int {
	if a.Windows == nil {
		return 0
	}
	return a.Windows[layer]
}

// Latent describes DeepSeek's multi-head latent attention.
type Latent struct {
	QRank  int // 0: queries are projected directly
	KVRank int
	Nope   int // values per head without position
	Rope   int // values per head with position
	Value  int // values per head of the output
	Bias   bool
}

// MoE describes the mixture-of-experts layers.
type MoE struct {
	Experts   int
	TopK      int
	Width     int // of one expert
	Shared    int // width of the shared experts together, 0 for none
	Sigmoid   bool
	Bias      bool // the router has e_score_correction_bias
	Groups    int
	TopGroups int
	Normalize bool
	Scale     float32
	Sparse    []bool // per layer: experts instead of a dense MLP
}

// ReadConfig reads config.json in a checkpoint folder, and generation_config.json
// beside it for the tokens that end a text.
func ReadConfig(dir string) (Config, error) {
	f, err := ReadCheckpointFields(dir)
	if err != nil {
		return Config{}, err
	}
	c, err := ParseConfig(f)
	if err != nil {
		return Config{}, err
	}
	g, err := ReadFields(filepath.Join(dir, "generation_config.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return Config{}, err
	}
	if eos := readEOS(g, c.Vocab); eos != nil {
		c.EOS = eos
	}
	return c, g.Err()
}

// ReadCheckpointFields reads config.json in a checkpoint folder.
func ReadCheckpointFields(dir string) (*Fields, error) {
	path := filepath.Join(dir, "config.json")
	f, err := ReadFields(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, &ConfigError{File: path, Reason: "no such file: give the folder of a Hugging Face checkpoint"}
	}
	return f, err
}

// ParseConfig reads the target model's configuration.
func ParseConfig(f *Fields) (Config, error) {
	architecture := Architecture(f)
	var c Config
	switch architecture {
	case "LlamaForCausalLM":
		c = parseLlama(f)
	case "MistralForCausalLM":
		c = parseMistral(f)
	case "Qwen2ForCausalLM":
		c = parseQwen2(f)
	case "Qwen3ForCausalLM":
		c = parseQwen3(f)
	case "Qwen3MoeForCausalLM":
		c = parseQwen3MoE(f)
	case "DeepseekV3ForCausalLM":
		c = parseDeepSeek(f)
	case "KimiK25ForConditionalGeneration":
		c = parseKimiK25(f)
	default:
		f.Fail("architectures", "supported are LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, "+
			"Qwen3MoeForCausalLM, DeepseekV3ForCausalLM and KimiK25ForConditionalGeneration")
	}
	c.Architecture = architecture
	return c, f.Err()
}

// Architecture is the first entry of architectures.
func Architecture(f *Fields) string {
	if names := f.Strings("architectures"); len(names) > 0 {
		return names[0]
	}
	f.Fail("architectures", "expected the name of the model class")
	return ""
}

// maxLayers bounds what a configuration can make us allocate before its tensors are looked at.
const maxLayers = 1024

// defaults are what an architecture's published code takes for keys that a
// configuration leaves out.
type defaults struct {
	positions int
	kvHeads   int // 0: as many as query heads
	headDim   int // 0: hidden_size over num_attention_heads
}

// parseCommon reads what all architectures share, quantisation included.
func parseCommon(f *Fields, d defaults) Config {
	c := Config{
		Layers:       f.Count("num_hidden_layers"),
		Hidden:       f.Count("hidden_size"),
		Intermediate: f.Count("intermediate_size"),
		Vocab:        f.Count("vocab_size"),
		MaxPositions: f.Int("max_position_embeddings", d.positions),
		NormEps:      float32(f.Float("rms_norm_eps", 1e-6)),
		Tied:         f.Bool("tie_word_embeddings", false),
		BOS:          int32(f.Int("bos_token_id", 0)),
		Quant:        parseQuant(f),
	}
	c.EOS = readEOS(f, c.Vocab)
	if !f.Has("bos_token_id") {
		c.BOS = -1
	}
	if c.Layers > maxLayers {
		f.Fail("num_hidden_layers", "expected at most 1024 layers")
		c.Layers = 1
	}
	if c.NormEps < 0 {
		f.Fail("rms_norm_eps", "expected a number of at least 0")
	}
	if c.MaxPositions < 1 {
		f.Fail("max_position_embeddings", "expected a positive integer")
	}
	f.OneOf("hidden_act", "silu", "silu")
	dtype := "dtype"
	if !f.Has(dtype) {
		dtype = "torch_dtype"
	}
	f.OneOf(dtype, "bfloat16", "bfloat16", "float16", "float32")
	return c
}

// readEOS reads the tokens that end a text. One outside the vocabulary never comes,
// and the text would not end.
func readEOS(f *Fields, vocab int) []int32 {
	eos := f.IntOrList("eos_token_id")
	for _, id := range eos {
		if id < 0 || int(id) >= vocab {
			f.Fail("eos_token_id", fmt.Sprintf("expected token ids from 0 to %d, below vocab_size", vocab-1))
			return nil
		}
	}
	return eos
}

// parseGrouped adds grouped-query attention and its rotary embedding.
func parseGrouped(f *Fields, c *Config, d defaults) {
	a := &c.Attention
	a.Heads = f.Count("num_attention_heads")
	kvHeads := a.Heads
	if d.kvHeads > 0 && !f.Given("num_key_value_heads") {
		kvHeads = d.kvHeads
	}
	a.KVHeads = f.Int("num_key_value_heads", kvHeads)
	if a.KVHeads < 1 || a.Heads%a.KVHeads != 0 {
		f.Fail("num_key_value_heads", "expected a divisor of num_attention_heads")
		a.KVHeads = a.Heads
	}
	if d.headDim == 0 {
		d.headDim = c.Hidden / a.Heads
	}
	a.HeadDim = f.Int("head_dim", d.headDim)
	if a.HeadDim < 2 || a.HeadDim%2 != 0 {
		f.Fail("head_dim", "expected a positive even number")
		a.HeadDim = 2
	}
	c.setRope(f, a.HeadDim)
}

// setRope reads the rotary embedding of dim values per head. Positions that it does
// not reach are none of the model's.
func (c *Config) setRope(f *Fields, dim int) {
	c.Rope = parseRope(f, dim, c.MaxPositions)
	if c.Rope.Type == "longrope" {
		c.MaxPositions = min(c.MaxPositions, c.Rope.Original)
	}
}

// CacheValues is how many values of every position a rank's caches hold, over
// all layers.
func (c *Config) CacheValues(s Shard) int {
	if c.Latent != nil {
		return c.Layers * (c.Latent.KVRank + c.Latent.Rope)
	}
	h := s.SplitHeads(c.Attention.Heads, c.Attention.KVHeads)
	return c.Layers * 2 * (h.KVHi - h.KVLo) * c.Attention.HeadDim
}

// Skippable reports whether a tensor that no layer took is known not to matter:
// buffers of old exporters, vision towers, the layers of multi-token prediction
// and the head of a tied model.
func (c *Config) Skippable(name string) bool {
	if strings.HasSuffix(name, ".rotary_emb.inv_freq") ||
		strings.HasPrefix(name, "vision_tower.") || strings.HasPrefix(name, "mm_projector.") {
		return true
	}
	rest, ok := strings.CutPrefix(name, c.TensorPrefix)
	if !ok {
		return false
	}
	if c.Tied && rest == "lm_head.weight" {
		return true
	}
	layer, ok := strings.CutPrefix(rest, "model.layers.")
	if !ok || c.Latent == nil {
		return false
	}
	number, _, _ := strings.Cut(layer, ".")
	n := 0
	for _, d := range []byte(number) {
		if d < '0' || d > '9' || n > maxLayers {
			return false
		}
		n = n*10 + int(d-'0')
	}
	return number != "" && n >= c.Layers
}
