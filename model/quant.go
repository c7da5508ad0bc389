package model

import (
	"bytes"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
)

// Quant says which linear layers of a checkpoint are quantised, and how.
type Quant struct {
	Method QuantMethod
	ignore []string         // module names, or some of their parts: mlp.gate
	re     []*regexp.Regexp // module name patterns
}

// QuantMethod is a storage scheme of quantised weights.
type QuantMethod uint8

// The schemes that checkpoints use.
const (
	NoQuant QuantMethod = iota
	// FP8Blocks is DeepSeek's: F8E4M3 with weight_scale_inv per 128x128 block.
	FP8Blocks
	// INT4Groups is compressed-tensors pack-quantized: groups of 32 along the input.
	INT4Groups
)

// Of is the scheme of one linear module, named as in the checkpoint without ".weight".
func (q Quant) Of(module string) QuantMethod {
	if q.Method == NoQuant {
		return NoQuant
	}
	for _, name := range q.ignore {
		if strings.Contains("."+module+".", "."+name+".") {
			return NoQuant
		}
	}
	for _, re := range q.re {
		if re.MatchString(module) {
			return NoQuant
		}
	}
	return q.Method
}

// Granule is the width in which the scheme's rows may be cut along the input.
func (q Quant) Granule(module string) int {
	switch q.Of(module) {
	case INT4Groups:
		return 32
	case FP8Blocks:
		return 128
	}
	return 1
}

// parseQuant reads quantization_config, or compression_config, where it stands.
func parseQuant(f *Fields) Quant {
	name := "quantization_config"
	if !f.Has(name) && f.Has("compression_config") {
		name = "compression_config"
	}
	section := f.Object(name)
	if section == nil {
		return Quant{}
	}
	switch section.OneOf("quant_method", "", "fp8", "compressed-tensors") {
	case "fp8":
		return parseFP8(section)
	case "compressed-tensors":
		return parsePacked(section)
	}
	return Quant{}
}

func parseFP8(f *Fields) Quant {
	f.OneOf("fmt", "e4m3", "e4m3")
	f.OneOf("activation_scheme", "dynamic", "dynamic")
	if block := f.Ints("weight_block_size"); len(block) != 2 || block[0] != 128 || block[1] != 128 {
		f.Fail("weight_block_size", "supported is [128, 128]")
	}
	q := Quant{Method: FP8Blocks}
	q.ignored(f, "modules_to_not_convert")
	q.ignored(f, "ignored_layers")
	q.ignore = append(q.ignore, "lm_head") // published files do not say so
	return q
}

func parsePacked(f *Fields) Quant {
	f.OneOf("format", "", "pack-quantized")
	refuse(f, "kv_cache_scheme", "transform_config")
	if sparsity := f.Object("sparsity_config"); sparsity != nil {
		sparsity.OneOf("format", "dense", "dense")
	}
	groups := f.Object("config_groups")
	if groups == nil {
		f.Fail("config_groups", "expected the description of the weights")
		return Quant{}
	}
	if len(groups.raw) != 1 {
		f.Fail("config_groups", "supported is one group")
		return Quant{}
	}
	for name := range groups.raw {
		group := groups.Object(name)
		if group == nil {
			return Quant{}
		}
		if targets := group.Strings("targets"); len(targets) != 1 || targets[0] != "Linear" {
			group.Fail("targets", `supported is ["Linear"]`)
		}
		refuse(group, "input_activations", "output_activations")
		weights := group.Object("weights")
		if weights == nil {
			group.Fail("weights", "expected the description of the weights")
			return Quant{}
		}
		weights.OneOf("type", "int", "int")
		weights.OneOf("strategy", "group", "group")
		if weights.Int("num_bits", 0) != 4 {
			weights.Fail("num_bits", "supported is 4")
		}
		if weights.Int("group_size", 0) != 32 {
			weights.Fail("group_size", "supported is 32")
		}
		if weights.Has("actorder") {
			weights.OneOf("actorder", "", "weight", "static") // group and dynamic need an index of every column
		}
		if weights.Bool("dynamic", false) {
			weights.Fail("dynamic", "supported is false")
		}
		if !weights.Bool("symmetric", false) {
			weights.Fail("symmetric", "supported is true")
		}
	}
	q := Quant{Method: INT4Groups}
	q.ignored(f, "ignore")
	return q
}

// refuse fails on fields that would change the arithmetic, unless they are empty.
func refuse(f *Fields, names ...string) {
	for _, name := range names {
		if f.Has(name) && string(bytes.TrimSpace(f.raw[name])) != "{}" {
			f.Fail(name, "supported is null: Octet quantises weights alone")
		}
	}
}

// compileIgnore compiles a pattern that matches from the beginning of a name. The usual
// ".*something.*" becomes a search for something, which is ten times as fast: every
// rank asks of every module.
func compileIgnore(pattern string) (*regexp.Regexp, error) {
	re, err := regexp.Compile("^(?:" + pattern + ")")
	core, anywhere := strings.CutPrefix(pattern, ".*")
	if err != nil || !anywhere {
		return re, err
	}
	if rest, ok := strings.CutSuffix(core, ".*"); ok && !strings.HasSuffix(rest, `\`) {
		core = rest
	}
	if tree, err := syntax.Parse(core, syntax.Perl); err != nil || tree.Op == syntax.OpAlternate {
		return re, nil // ".*" belongs to the first alternative alone
	}
	return regexp.Compile(core)
}

// ignored reads a list of module names and of "re:" patterns, which match from
// the beginning of a name.
func (q *Quant) ignored(f *Fields, field string) {
	for _, entry := range f.Strings(field) {
		pattern, isPattern := strings.CutPrefix(entry, "re:")
		if !isPattern {
			q.ignore = append(q.ignore, entry)
			continue
		}
		re, err := compileIgnore(pattern)
		if err != nil {
			f.Fail(field, fmt.Sprintf("pattern %q: %v", pattern, err))
			return
		}
		q.re = append(q.re, re)
	}
}
