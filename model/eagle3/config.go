package eagle3

import (
	"strings"

	"github.com/octet-run/octet/model"
)

// Config describes a drafter and how it fits its target.
type Config struct {
	model.Config // of the one layer; Vocab is the target's

	TargetHidden int
	DraftVocab   int
	// Captures are the target layers whose input residual stream the drafter
	// reads, low to high: the Options.Captures of its target.
	Captures []int

	NormBeforeResidual bool // the residual is the normed feature
	NormBeforeFC       bool // one RMSNorm over all captured features
	NormEachCapture    bool // an RMSNorm over each captured feature
	NormOutput         bool // the next step's feature is normed
}

// ReadConfig reads a drafter's config.json. captures overrides the layers that
// it names, as layer inputs; nil takes the file's.
func ReadConfig(dir string, target *model.Config, captures []int) (Config, error) {
	f, err := model.ReadCheckpointFields(dir)
	if err != nil {
		return Config{}, err
	}
	return ParseConfig(f, target, captures)
}

// ParseConfig is ReadConfig for fields already read.
func ParseConfig(f *model.Fields, target *model.Config, captures []int) (Config, error) {
	name := model.Architecture(f)
	if !strings.Contains(name, "Eagle3") {
		f.Fail("architectures", "supported drafters are EAGLE-3: LlamaForCausalLMEagle3 and the like")
	}
	// Some exporters nest the layer's own fields.
	layer := f.Object("transformer_layer_config")
	if layer == nil {
		layer = f
	}
	c := Config{Config: model.ParseDrafterLayer(layer), Captures: captures}
	c.Architecture = name
	if c.Layers != 1 {
		layer.Fail("num_hidden_layers", "supported are drafters of one layer")
	}
	c.TargetHidden = f.Int("target_hidden_size", c.Hidden)
	c.DraftVocab = f.Int("draft_vocab_size", c.Vocab)
	if c.TargetHidden != target.Hidden {
		f.Fail("target_hidden_size", "the drafter was made for another target: its hidden size differs")
	}
	if c.Vocab != target.Vocab {
		layer.Fail("vocab_size", "the drafter was made for another target: its vocabulary differs")
	}
	if c.DraftVocab < 1 || c.DraftVocab > c.Vocab {
		f.Fail("draft_vocab_size", "expected 1 to vocab_size")
	}
	eagle := f.Object("eagle_config")
	if eagle != nil && !eagle.Bool("use_aux_hidden_state", true) {
		eagle.Fail("use_aux_hidden_state", "supported is true: features of several layers of the target")
	}
	c.NormBeforeResidual = variant(f, eagle, "norm_before_residual")
	c.NormBeforeFC = variant(f, eagle, "norm_before_fc")
	c.NormEachCapture = variant(f, eagle, "fc_norm")
	c.NormOutput = variant(f, eagle, "norm_output")
	if c.Captures == nil {
		c.Captures = captureLayers(f, eagle, target.Layers)
	}
	if len(c.Captures) == 0 {
		f.Fail(captureField, "expected the layers whose features the drafter reads")
	}
	for i, l := range c.Captures {
		if l < 0 || l > target.Layers || i > 0 && l <= c.Captures[i-1] {
			f.Fail(captureField, "expected numbers of the target's layers, rising; name them in the file or give them when loading")
		}
	}
	return c, f.Err()
}

const captureField = "eagle_aux_hidden_state_layer_ids"

// captureLayers is where the target's features are taken. The same field has two
// meanings: inside eagle_config (SGLang, SpecForge) it lists layers whose output
// is meant, at the top level (vLLM) layers whose input is. Without it: 2, the
// middle, and three before the end.
func captureLayers(f, eagle *model.Fields, targetLayers int) []int {
	if eagle != nil && eagle.Has(captureField) {
		outputs := eagle.Ints(captureField)
		inputs := make([]int, len(outputs))
		for i, id := range outputs {
			inputs[i] = id + 1
		}
		return inputs
	}
	if f.Has(captureField) {
		return f.Ints(captureField)
	}
	return []int{2, targetLayers / 2, targetLayers - 3}
}

// variant is a switch that stands at the top level or in eagle_config.
func variant(f, eagle *model.Fields, name string) bool {
	return f.Bool(name, false) || eagle != nil && eagle.Bool(name, false)
}
