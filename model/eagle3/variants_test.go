package eagle3

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/checkpoint"
	"github.com/octet-run/octet/model/kvcache"
	"github.com/octet-run/octet/model/modeltest"
)

const variantTarget = `{"architectures":["LlamaForCausalLM"],"hidden_act":"silu","hidden_size":64,"intermediate_size":96,
	"num_hidden_layers":8,"num_attention_heads":4,"vocab_size":60,"rms_norm_eps":1e-5,"torch_dtype":"bfloat16"}`

func variantConfig(extra string) string {
	return `{"architectures":["LlamaForCausalLMEagle3"],"hidden_act":"silu","hidden_size":64,"intermediate_size":80,
	"num_hidden_layers":1,"num_attention_heads":4,"num_key_value_heads":2,"vocab_size":60,"draft_vocab_size":30,
	"max_position_embeddings":8,"rms_norm_eps":1e-5,"torch_dtype":"bfloat16"` + extra + "}"
}

// TestVariantsHoldTheOracle extends over captured features and then drafts a
// chain, past the drafter's own max_position_embeddings.
func TestVariantsHoldTheOracle(t *testing.T) {
	mla := `,"q_lora_rank":24,"kv_lora_rank":16,"qk_nope_head_dim":16,"qk_rope_head_dim":8,"v_head_dim":12`
	cases := []struct {
		name, config string
		rename       func(string) string
		ownEmbedding bool
	}{
		{name: "plain", config: variantConfig("")},
		{name: "norm before residual", config: variantConfig(`,"norm_before_residual":true`)},
		{name: "norm before fc", config: variantConfig(`,"eagle_config":{"norm_before_fc":true}`)},
		{name: "norm of each capture", config: variantConfig(`,"fc_norm":true`)},
		{name: "norm of the output", config: variantConfig(`,"norm_output":true`)},
		{name: "all norms", config: variantConfig(`,"norm_output":true,"norm_before_residual":true,"fc_norm":true,"norm_before_fc":true`)},
		{name: "latent attention", config: variantConfig(mla)},
		{name: "latent attention, direct queries", config: variantConfig(strings.Replace(mla, "24", "null", 1))},
		{name: "same vocabulary", config: variantConfig(`,"draft_vocab_size":null`)},
		{name: "own embedding", config: variantConfig(""), ownEmbedding: true},
		{name: "layers.0", config: variantConfig(""), rename: func(s string) string { return strings.Replace(s, "midlayer", "layers.0", 1) }},
		{name: "model. prefix", config: variantConfig(""), rename: func(s string) string {
			return "model." + strings.Replace(s, "midlayer", "layers.0", 1)
		}},
		{name: "nested layer", config: `{"architectures":["Eagle3Speculator"],"draft_vocab_size":30,"transformer_layer_config":` + variantConfig("") + "}"},
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			v := newSubject(t, c.config, uint64(i), c.rename, c.ownEmbedding)
			v.hold(t)
		})
	}
}

// subject is a random drafter of a random target.
type subject struct {
	target       modeltest.Checkpoint
	cfg          Config
	draft        *checkpoint.Files
	parts        modeltest.DraftLayer
	ownEmbedding bool
}

func newSubject(t *testing.T, config string, seed uint64, rename func(string) string, ownEmbedding bool) *subject {
	t.Helper()
	v := &subject{target: modeltest.Random(t, variantTarget, seed+100)}
	fields, err := model.ParseFields("config.json", []byte(config))
	if err != nil {
		t.Fatal(err)
	}
	if v.cfg, err = ParseConfig(fields, &v.target.Config, nil); err != nil {
		t.Fatal(err)
	}
	synthetic := checkpoint.Synthetic(seed)
	defer synthetic.Close()
	plan, err := Plan(Source{Draft: synthetic, Target: v.target.Files}, v.cfg, &v.target.Config, model.Shard{Rank: 0, Ranks: 1})
	if err != nil {
		t.Fatal(err)
	}
	if ownEmbedding {
		plan.Slices = append(plan.Slices, checkpoint.Slice{
			Tensor: "embed_tokens.weight", DType: kernels.BF16, Rows: v.cfg.Vocab, Cols: v.cfg.Hidden,
		})
	}
	if rename == nil {
		rename = func(s string) string { return s }
	}
	for i := range plan.Slices {
		plan.Slices[i].Tensor = rename(plan.Slices[i].Tensor)
	}
	if v.draft, err = checkpoint.OpenBytes("draft", modeltest.Pack(plan, seed)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { v.draft.Close() })
	v.parts = modeltest.DraftLayer{
		Layer: rename("midlayer."), Root: rename(""), Head: rename("lm_head"), Captures: len(v.cfg.Captures),
		NormBeforeResidual: v.cfg.NormBeforeResidual, NormBeforeFC: v.cfg.NormBeforeFC,
		NormEachCapture: v.cfg.NormEachCapture, NormOutput: v.cfg.NormOutput,
	}
	v.ownEmbedding = ownEmbedding
	return v
}

const variantPrompt, variantSteps = 12, 4

// script is what the drafter is given and what the oracle makes of it.
type script struct {
	features []float32 // [variantPrompt, width]
	width    int
	tokens   []int32     // the prompt's, then one a step
	hidden   [][]float32 // after the prompt and after each step: the last row's feature
	logits   [][]float32
}

func (v *subject) script() script {
	rng := rand.New(rand.NewPCG(3, 3))
	s := script{width: len(v.cfg.Captures) * v.cfg.TargetHidden}
	features := make([][]float64, variantPrompt)
	for i := range variantPrompt * s.width {
		s.features = append(s.features, float32(rng.NormFloat64()))
		features[i/s.width] = append(features[i/s.width], float64(s.features[i]))
	}
	for range variantPrompt + variantSteps {
		s.tokens = append(s.tokens, int32(rng.IntN(v.cfg.Vocab)))
	}
	oracle := modeltest.NewOracle(modeltest.Checkpoint{Files: v.draft, Config: v.cfg.Config})
	h := oracle.DraftInputs(v.parts, features)
	for n := variantPrompt; n <= len(s.tokens); n++ {
		last := oracle.DraftRows(v.parts, h, v.embed(oracle, s.tokens[:n]))[n-1]
		s.hidden = append(s.hidden, narrow(last))
		s.logits = append(s.logits, narrow(v.logits(oracle, last)))
		h = append(h, last)
	}
	return s
}

func (v *subject) hold(t *testing.T) {
	t.Helper()
	s := v.script()
	for _, ranks := range []int{1, 3, 8} {
		modeltest.Run(t, ranks, newCPU, func(r *modeltest.Rank) error { return v.holdRank(r, s) })
	}
}

func (v *subject) holdRank(r *modeltest.Rank, s script) error {
	d, err := New(Source{Draft: v.draft, Target: v.target.Files}, v.cfg, &v.target.Config,
		Options{Blocks: 4, MaxRows: 32, Positions: 64, Group: r}, r.Backend, checkpoint.LoadConfig{})
	if err != nil {
		return err
	}
	seq := kvcache.New(4).NewSequence()
	var batch kernels.Batch
	if err := seq.Append(&batch, s.tokens[:variantPrompt]); err != nil {
		return err
	}
	z := d.Extend(&batch, kernels.HostTensor(kernels.F32, variantPrompt, s.width, s.features), nil)
	seq.Commit(variantPrompt)
	for step := range variantSteps + 1 {
		last := int32(z.Rows - 1)
		if err := s.holdStep(r, d, step, z, last); err != nil {
			return err
		}
		if step == variantSteps {
			break
		}
		batch = kernels.Batch{}
		if err := seq.AppendTree(&batch, s.tokens[variantPrompt+step:][:1], []uint64{1<<(step+1) - 1}); err != nil {
			return err
		}
		z = d.Step(&batch, []int32{last})
	}
	if got := d.TargetToken(7); v.cfg.DraftVocab < v.cfg.Vocab && got != 14 {
		return fmt.Errorf("draft token 7 is target token %d, want 14", got)
	}
	return nil
}

func (s script) holdStep(r *modeltest.Rank, d *Drafter, step int, z kernels.Tensor, row int32) error {
	logits := r.GatherToRoot(d.Logits([]int32{row}), d.VocabWidths())
	if err := r.Backend.Sync(); err != nil {
		return err
	}
	if err := modeltest.Near(fmt.Sprintf("feature of step %d", step), z.F32Row(int(row)), s.hidden[step], 1e-3); err != nil {
		return err
	}
	if r.Rank() != 0 {
		return nil
	}
	return modeltest.Near(fmt.Sprintf("logits of step %d", step), logits.F32Row(0), s.logits[step], 1e-3)
}

func (v *subject) embed(draft *modeltest.Oracle, tokens []int32) [][]float64 {
	if v.ownEmbedding {
		return draft.Embed("embed_tokens", tokens)
	}
	return modeltest.NewOracle(v.target).Embed("model.embed_tokens", tokens)
}

func (v *subject) logits(draft *modeltest.Oracle, z []float64) []float64 {
	head := draft
	if v.cfg.DraftVocab == v.cfg.Vocab { // then the head is the target's
		head = modeltest.NewOracle(v.target)
	}
	return draft.DraftLogits(v.parts, head, [][]float64{z})[0]
}

func narrow(x []float64) []float32 {
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = float32(v)
	}
	return out
}
