package synth

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/model/checkpoint"
)

// Config is the shape of a synthetic Llama. Zero fields take the default shape's.
type Config struct {
	Layers       int
	Hidden       int
	Intermediate int
	Heads        int
	KVHeads      int
	HeadDim      int
	Vocab        int
	MaxPositions int
	Seed         uint64
}

// withDefaults fills in the shape of a small Llama 3.
func (c Config) withDefaults() Config {
	set := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	set(&c.Layers, 4)
	set(&c.Hidden, 2048)
	set(&c.Intermediate, 5632)
	set(&c.Heads, 16)
	set(&c.KVHeads, 4)
	set(&c.HeadDim, 128)
	set(&c.Vocab, 32000)
	set(&c.MaxPositions, 4096)
	return c
}

// Sized is the configuration with as many layers as make at least the given
// number of bytes.
func (c Config) Sized(bytes int64) Config {
	c.Layers = 1
	one := c.Bytes()
	c.Layers = 2
	perLayer := c.Bytes() - one
	c.Layers = int(1 + max(0, (bytes-one+perLayer-1)/perLayer))
	return c
}

// Bytes is the size of the weights.
func (c Config) Bytes() int64 {
	total := int64(0)
	for _, t := range c.tensors() {
		total += t.bytes()
	}
	return total
}

func (c Config) validate() error {
	if c.Heads%c.KVHeads != 0 {
		return fmt.Errorf("synth: %d heads do not share %d key/value heads evenly", c.Heads, c.KVHeads)
	}
	return nil
}

// tensor is one bf16 tensor of the file, in the order of writing.
type tensor struct {
	name  string
	shape []int
}

const elementBytes = 2

func (t tensor) bytes() int64 {
	n := int64(elementBytes)
	for _, d := range t.shape {
		n *= int64(d)
	}
	return n
}

func (c Config) tensors() []tensor {
	c = c.withDefaults()
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	out := []tensor{{"model.embed_tokens.weight", []int{c.Vocab, c.Hidden}}}
	for i := range c.Layers {
		layer := func(name string, shape ...int) {
			out = append(out, tensor{fmt.Sprintf("model.layers.%d.%s.weight", i, name), shape})
		}
		layer("input_layernorm", c.Hidden)
		layer("self_attn.q_proj", q, c.Hidden)
		layer("self_attn.k_proj", kv, c.Hidden)
		layer("self_attn.v_proj", kv, c.Hidden)
		layer("self_attn.o_proj", c.Hidden, q)
		layer("post_attention_layernorm", c.Hidden)
		layer("mlp.gate_proj", c.Intermediate, c.Hidden)
		layer("mlp.up_proj", c.Intermediate, c.Hidden)
		layer("mlp.down_proj", c.Hidden, c.Intermediate)
	}
	return append(out, tensor{"model.norm.weight", []int{c.Hidden}}, tensor{"lm_head.weight", []int{c.Vocab, c.Hidden}})
}

// Write makes config.json and model.safetensors in dir, which it creates. The
// file streams to disk: memory stays at a few megabytes. progress may be nil.
func Write(dir string, c Config, progress func(written, total int64)) error {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := writeConfig(filepath.Join(dir, "config.json"), c); err != nil {
		return err
	}
	path := filepath.Join(dir, "model.safetensors")
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	err = errors.Join(writeTensors(f, c, progress), f.Close())
	if err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

func writeConfig(path string, c Config) error {
	text, err := json.MarshalIndent(map[string]any{
		"architectures":           []string{"LlamaForCausalLM"},
		"model_type":              "llama",
		"hidden_act":              "silu",
		"hidden_size":             c.Hidden,
		"intermediate_size":       c.Intermediate,
		"num_hidden_layers":       c.Layers,
		"num_attention_heads":     c.Heads,
		"num_key_value_heads":     c.KVHeads,
		"head_dim":                c.HeadDim,
		"vocab_size":              c.Vocab,
		"max_position_embeddings": c.MaxPositions,
		"rms_norm_eps":            1e-5,
		"rope_theta":              10000.0,
		"tie_word_embeddings":     false,
		"torch_dtype":             "bfloat16",
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// pieceBytes is how much is made and written at once.
const pieceBytes = 1 << 20

func writeTensors(f *os.File, c Config, progress func(written, total int64)) error {
	tensors, total := c.tensors(), c.Bytes()
	out := bufio.NewWriterSize(f, 4*pieceBytes)
	if err := writeHeader(out, tensors); err != nil {
		return err
	}
	random := checkpoint.NewRandom(c.Seed)
	piece := make([]byte, pieceBytes)
	written := int64(0)
	for _, t := range tensors {
		for left := t.bytes(); left > 0; {
			part := piece[:min(left, pieceBytes)]
			if checkpoint.IsNorm(t.name) {
				checkpoint.Ones(part, kernels.BF16)
			} else {
				random.Fill(part, kernels.BF16, t.shape[len(t.shape)-1])
			}
			if _, err := out.Write(part); err != nil {
				return err
			}
			left -= int64(len(part))
			written += int64(len(part))
			if progress != nil {
				progress(written, total)
			}
		}
	}
	return out.Flush()
}

func writeHeader(out *bufio.Writer, tensors []tensor) error {
	type entry struct {
		DType   string   `json:"dtype"`
		Shape   []int    `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	header, at := map[string]entry{}, int64(0)
	for _, t := range tensors {
		header[t.name] = entry{"BF16", t.shape, [2]int64{at, at + t.bytes()}}
		at += t.bytes()
	}
	text, err := json.Marshal(header)
	if err != nil {
		return err
	}
	for len(text)%8 != 0 { // weights then begin aligned
		text = append(text, ' ')
	}
	if err := binary.Write(out, binary.LittleEndian, uint64(len(text))); err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}
