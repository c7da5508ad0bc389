package eagle3

import (
	"slices"
	"strings"
	"testing"

	"github.com/octet-run/octet/model"
)

func parseDrafter(t *testing.T, extra string) (Config, error) {
	t.Helper()
	target := model.Config{Layers: 8, Hidden: 64, Vocab: 60}
	fields, err := model.ParseFields("config.json", []byte(variantConfig(extra)))
	if err != nil {
		t.Fatal(err)
	}
	return ParseConfig(fields, &target, nil)
}

func TestCaptureIdsMeanWhatTheirPlaceSays(t *testing.T) {
	for _, c := range []struct {
		name, extra string
		want        []int
	}{
		{"none: low, middle, high", "", []int{2, 4, 5}},
		{"inside eagle_config: outputs of layers", `,"eagle_config":{"eagle_aux_hidden_state_layer_ids":[1,3,4]}`, []int{2, 4, 5}},
		{"at the top: inputs of layers", `,"eagle_aux_hidden_state_layer_ids":[1,3,4]`, []int{1, 3, 4}},
		{"the output of the last layer", `,"eagle_config":{"eagle_aux_hidden_state_layer_ids":[1,3,7]}`, []int{2, 4, 8}},
	} {
		got, err := parseDrafter(t, c.extra)
		if err != nil || !slices.Equal(got.Captures, c.want) {
			t.Errorf("%s: %v (%v), want %v", c.name, got.Captures, err, c.want)
		}
	}
}

func TestDraftersThatDoNotFitAreRefused(t *testing.T) {
	for _, c := range []struct{ extra, mention string }{
		{`,"architectures":["LlamaForCausalLM"]`, "field architectures is"},
		{`,"num_hidden_layers":2`, "field num_hidden_layers is 2: supported are drafters of one layer"},
		{`,"target_hidden_size":128`, "field target_hidden_size is 128: the drafter was made for another target"},
		{`,"vocab_size":61`, "field vocab_size is 61: the drafter was made for another target"},
		{`,"draft_vocab_size":61`, "field draft_vocab_size is 61: expected 1 to vocab_size"},
		{`,"eagle_aux_hidden_state_layer_ids":[1,3,9]`, "field eagle_aux_hidden_state_layer_ids is [1,3,9]"},
		{`,"eagle_aux_hidden_state_layer_ids":[3,1,4]`, "field eagle_aux_hidden_state_layer_ids is [3,1,4]"},
		{`,"eagle_aux_hidden_state_layer_ids":[-1,1,4]`, "field eagle_aux_hidden_state_layer_ids is [-1,1,4]"},
		{`,"eagle_aux_hidden_state_layer_ids":[]`, "field eagle_aux_hidden_state_layer_ids is []"},
		{`,"eagle_config":{"use_aux_hidden_state":false}`, "field eagle_config.use_aux_hidden_state is false"},
	} {
		if _, err := parseDrafter(t, c.extra); err == nil || !strings.Contains(err.Error(), c.mention) {
			t.Errorf("%s: error %v does not mention %q", c.extra, err, c.mention)
		}
	}
}
