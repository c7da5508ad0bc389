package eagle3

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"testing"

	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/kernels/cpu"
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/checkpoint"
	"github.com/octet-run/octet/model/kvcache"
	"github.com/octet-run/octet/model/layers"
	"github.com/octet-run/octet/model/modeltest"
)

func newCPU() (kernels.Backend, error) { return cpu.New(cpu.Config{}) }

// recorded is the pair's expected.json.
type recorded struct {
	Cases []recordedCase
}

type recordedCase struct {
	PromptIDs []int32 `json:"prompt_ids"`
	Greedy    []int32 `json:"greedy_96"`
	Overshoot []int32 `json:"greedy_overshoot_8"`
	Accept    map[string]struct {
		AcceptLengths []int `json:"accept_lengths"`
	}
	DraftRound *draftRound `json:"draft_round"`
	TreeRound  *treeRound  `json:"tree_round"`
}

type draftRound struct {
	BonusToken int32     `json:"bonus_token"`
	Low        []float32 `json:"aux_low_first8"`
	Mid        []float32 `json:"aux_mid_first8"`
	High       []float32 `json:"aux_high_first8"`
	FCLast     []float32 `json:"fc_out_last_row_first8"`
	FCFirst    []float32 `json:"fc_out_first_row_first8"`
	LayerOut   []float32 `json:"layer_out_last_row_first8"`
	Top8       []struct {
		DraftID  int32   `json:"draft_id"`
		TargetID int32   `json:"target_id"`
		Logit    float32 `json:"logit"`
		Logprob  float32 `json:"logprob"`
	} `json:"first_step_top8"`
	ChainTokens   []int32     `json:"chain5_tokens"`
	ChainLogprobs []float32   `json:"chain5_logprobs"`
	ChainLayerOut [][]float32 `json:"chain5_layer_out_first4"`
}

type treeRound struct {
	Tokens       []int32
	Parents      []int
	Positions    []int32
	AcceptLength int `json:"accept_length"`
	Candidates   struct {
		Tokens  []int32
		Parents []int
		Scores  []float32
	}
	BeamsPerStep [][]int `json:"beams_per_step"`
}

// pair is a target session and a drafter on one rank.
type pair struct {
	*modeltest.Session
	d    *Drafter
	seq  *kvcache.Sequence
	rows kernels.Tensor // what the drafter's last pass left
}

type fixture struct {
	target modeltest.Checkpoint
	draft  *checkpoint.Files
	cfg    Config
	ref    recorded
}

func openPair(t *testing.T) fixture {
	t.Helper()
	f := fixture{target: modeltest.Open(t, modeltest.Fixture("eagle3-llama-pair", "target"))}
	dir := modeltest.Fixture("eagle3-llama-pair", "draft")
	f.draft = modeltest.OpenFiles(t, dir)
	var err error
	if f.cfg, err = ReadConfig(dir, &f.target.Config, nil); err != nil {
		t.Fatal(err)
	}
	modeltest.ReadJSON(t, modeltest.Fixture("eagle3-llama-pair", "expected.json"), &f.ref)
	return f
}

const blocks = 24

func (f fixture) session(r *modeltest.Rank) (*pair, error) {
	s, err := modeltest.NewSession(r, f.target, model.Options{Blocks: blocks, MaxRows: 64, MaxPositions: 256, Captures: f.cfg.Captures})
	if err != nil {
		return nil, err
	}
	d, err := New(Source{Draft: f.draft, Target: f.target.Files}, f.cfg, &f.target.Config,
		Options{Blocks: blocks, MaxRows: 64, Positions: 256}, r.Backend, checkpoint.LoadConfig{})
	if err != nil {
		return nil, err
	}
	return &pair{Session: s, d: d, seq: kvcache.New(blocks).NewSequence()}, nil
}

// prefill runs the prompt and extends the drafter over it.
func (p *pair) prefill(prompt []int32) (bonus int32, features kernels.Tensor, err error) {
	out, logits, err := p.Session.Extend(prompt)
	if err != nil {
		return 0, kernels.Tensor{}, err
	}
	bonus = p.Choose(logits)
	return bonus, out.Features, p.extend(append(slices.Clone(prompt[1:]), bonus), out.Features, nil)
}

func (p *pair) extend(tokens []int32, features kernels.Tensor, rows []int32) error {
	var b kernels.Batch
	if err := p.seq.Append(&b, tokens); err != nil {
		return err
	}
	p.rows = p.d.Extend(&b, features, rows)
	p.seq.Commit(len(tokens))
	return p.Rank.Backend.Sync()
}

func (p *pair) lastRow() int32 { return int32(p.rows.Rows - 1) }

// top returns the k likeliest draft tokens of a row and their log-probabilities.
func top(logits []float32, k int) (ids []int32, logprobs []float32) {
	largest := float64(logits[modeltest.Argmax(logits)])
	sum := 0.0
	for _, v := range logits {
		sum += math.Exp(float64(v) - largest)
	}
	order := make([]int32, len(logits))
	for i := range order {
		order[i] = int32(i)
	}
	sort.SliceStable(order, func(a, b int) bool { return logits[order[a]] > logits[order[b]] })
	for _, id := range order[:k] {
		ids = append(ids, id)
		logprobs = append(logprobs, float32(float64(logits[id])-largest-math.Log(sum)))
	}
	return ids, logprobs
}

// chain drafts steps tokens greedily. visit sees each step's logits and feature.
func (p *pair) chain(steps int, visit func(step int, logits, hidden []float32) error) ([]int32, error) {
	var drafted []int32
	for step := range steps {
		last := p.lastRow()
		logits := p.d.Logits([]int32{last}).F32Row(0)
		if err := visit(step, logits, p.rows.F32Row(int(last))); err != nil {
			return nil, err
		}
		token := p.d.TargetToken(modeltest.Argmax(logits))
		drafted = append(drafted, token)
		if step == steps-1 {
			break
		}
		var b kernels.Batch
		if err := p.seq.AppendTree(&b, []int32{token}, []uint64{1<<(step+1) - 1}); err != nil {
			return nil, err
		}
		p.rows = p.d.Step(&b, []int32{last})
	}
	p.seq.Rollback()
	return drafted, p.Rank.Backend.Sync()
}

// verify runs the root and a tree, accepts greedily and returns the path taken
// and the tokens emitted. parents[i] is a node's parent; node 0 is the root.
func (p *pair) verify(tokens []int32, parents []int) (path []uint8, emitted []int32, features kernels.Tensor, err error) {
	sets := make([]uint64, len(tokens))
	for i := range tokens {
		sets[i] = 1 << i
		if i > 0 {
			sets[i] |= sets[parents[i]]
		}
	}
	var b kernels.Batch
	if err := p.Sequence.AppendTree(&b, tokens, sets); err != nil {
		return nil, nil, kernels.Tensor{}, err
	}
	out, logits, err := p.Pass(&b)
	if err != nil {
		return nil, nil, kernels.Tensor{}, err
	}
	best := make([]int32, len(tokens))
	for i, row := range logits {
		best[i] = modeltest.Argmax(row)
	}
	p.Rank.Broadcast(kernels.HostTensor(kernels.I32, 1, len(best), best), 0)
	at := 0
	path = []uint8{0}
	for next := 1; next < len(tokens); next++ {
		if parents[next] == at && tokens[next] == best[at] {
			path, emitted, at = append(path, uint8(next)), append(emitted, tokens[next]), next
		}
	}
	emitted = append(emitted, best[at])
	p.Model.MoveKV(p.Sequence.CommitPath(path, nil, nil))
	return path, emitted, out.Features, nil
}

func chainParents(n int) []int {
	parents := make([]int, n)
	for i := range parents {
		parents[i] = i - 1
	}
	return parents
}

func ignore(int, []float32, []float32) error { return nil }

// runChain generates with chains of k and compares every token and every round.
func (p *pair) runChain(c recordedCase, k int) error {
	bonus, _, err := p.prefill(c.PromptIDs)
	if err != nil {
		return err
	}
	want := append(slices.Clone(c.Greedy), c.Overshoot...)
	output, lengths := []int32{bonus}, []int(nil)
	for len(output) < len(c.Greedy) {
		drafted, err := p.chain(k, ignore)
		if err != nil {
			return err
		}
		root := output[len(output)-1]
		path, emitted, features, err := p.verify(append([]int32{root}, drafted...), chainParents(k+1))
		if err != nil {
			return err
		}
		rows := make([]int32, len(path))
		for i, node := range path {
			rows[i] = int32(node)
		}
		if err := p.extend(emitted, features, rows); err != nil {
			return err
		}
		output, lengths = append(output, emitted...), append(lengths, len(emitted))
	}
	if !slices.Equal(output, want[:len(output)]) {
		return fmt.Errorf("chain of %d: output %v, want %v", k, output, want)
	}
	if expected := c.Accept[fmt.Sprintf("chain_k%d", k)].AcceptLengths; !slices.Equal(lengths, expected) {
		return fmt.Errorf("chain of %d: rounds emit %v, want %v", k, lengths, expected)
	}
	p.Sequence.Truncate(0)
	p.seq.Truncate(0)
	return nil
}

func TestChainsAcceptRoundByRound(t *testing.T) {
	f := openPair(t)
	runs := []struct {
		ranks   int
		lengths []int
		cases   int
	}{{1, []int{3, 5, 7}, len(f.ref.Cases)}, {3, []int{5}, 2}, {8, []int{7}, 1}}
	for _, run := range runs {
		for _, k := range run.lengths {
			t.Run(fmt.Sprintf("ranks=%d/k=%d", run.ranks, k), func(t *testing.T) {
				modeltest.Run(t, run.ranks, newCPU, func(r *modeltest.Rank) error {
					p, err := f.session(r)
					if err != nil {
						return err
					}
					for i, c := range f.ref.Cases[:run.cases] {
						if err := p.runChain(c, k); err != nil {
							return fmt.Errorf("case %d: %w", i, err)
						}
					}
					return nil
				})
			})
		}
	}
}

func TestFirstDraftRoundValueByValue(t *testing.T) {
	f := openPair(t)
	modeltest.Run(t, 1, newCPU, func(r *modeltest.Rank) error {
		p, err := f.session(r)
		if err != nil {
			return err
		}
		for i, c := range f.ref.Cases {
			if c.DraftRound == nil {
				continue
			}
			if err := p.holdDraftRound(c); err != nil {
				return fmt.Errorf("case %d: %w", i, err)
			}
			p.Sequence.Truncate(0)
			p.seq.Truncate(0)
		}
		return nil
	})
}

const tolerance = 1e-3

func (p *pair) holdDraftRound(c recordedCase) error {
	want := c.DraftRound
	bonus, features, err := p.prefill(c.PromptIDs)
	if err != nil {
		return err
	}
	if bonus != want.BonusToken {
		return fmt.Errorf("bonus is %d, want %d", bonus, want.BonusToken)
	}
	hidden := p.d.cfg.TargetHidden
	last := features.F32Row(features.Rows - 1)
	for i, part := range [][]float32{want.Low, want.Mid, want.High} {
		if err := modeltest.Near(fmt.Sprintf("feature %d", i), last[i*hidden:i*hidden+8], part, tolerance); err != nil {
			return err
		}
	}
	fc := layers.Pass{Backend: p.Rank.Backend, Rows: features.Rows}.MatMul(features, p.d.w.fc)
	if err := modeltest.Near("fc, first row", fc.F32Row(0)[:8], want.FCFirst, tolerance); err != nil {
		return err
	}
	if err := modeltest.Near("fc, last row", fc.F32Row(fc.Rows - 1)[:8], want.FCLast, tolerance); err != nil {
		return err
	}
	if err := modeltest.Near("layer output", p.rows.F32Row(p.rows.Rows - 1)[:8], want.LayerOut, tolerance); err != nil {
		return err
	}
	tokens, err := p.chain(5, func(step int, logits, hidden []float32) error { return p.holdStep(want, step, logits, hidden) })
	if err != nil {
		return err
	}
	if !slices.Equal(tokens, want.ChainTokens) {
		return fmt.Errorf("chain is %v, want %v", tokens, want.ChainTokens)
	}
	return nil
}

func (p *pair) holdStep(want *draftRound, step int, logits, hidden []float32) error {
	if err := modeltest.Near(fmt.Sprintf("feature of step %d", step), hidden[:4], want.ChainLayerOut[step], tolerance); err != nil {
		return err
	}
	ids, logprobs := top(logits, 8)
	if err := modeltest.Near(fmt.Sprintf("log-probability of step %d", step), logprobs[:1], want.ChainLogprobs[step:step+1], tolerance); err != nil {
		return err
	}
	if step > 0 {
		return nil
	}
	for i, entry := range want.Top8 {
		if ids[i] != entry.DraftID || p.d.TargetToken(ids[i]) != entry.TargetID {
			return fmt.Errorf("candidate %d is %d (%d), want %d (%d)", i, ids[i], p.d.TargetToken(ids[i]), entry.DraftID, entry.TargetID)
		}
		if err := modeltest.Near("logit", logits[ids[i]:ids[i]+1], []float32{entry.Logit}, tolerance); err != nil {
			return err
		}
		if err := modeltest.Near("log-probability", logprobs[i:i+1], []float32{entry.Logprob}, tolerance); err != nil {
			return err
		}
	}
	return nil
}

// TestTreeStepsSeeTheirOwnAncestors grows the recorded tree along its recorded
// beams and compares every candidate, then verifies it.
func TestTreeStepsSeeTheirOwnAncestors(t *testing.T) {
	f := openPair(t)
	c := f.ref.Cases[0]
	for _, ranks := range []int{1, 5} {
		modeltest.Run(t, ranks, newCPU, func(r *modeltest.Rank) error {
			p, err := f.session(r)
			if err != nil {
				return err
			}
			if _, _, err := p.prefill(c.PromptIDs); err != nil {
				return err
			}
			if err := p.growTree(c.TreeRound); err != nil {
				return err
			}
			path, emitted, _, err := p.verify(c.TreeRound.Tokens, c.TreeRound.Parents)
			if err != nil {
				return err
			}
			if len(emitted) != c.TreeRound.AcceptLength || !slices.Equal(emitted, c.Greedy[1:1+len(emitted)]) {
				return fmt.Errorf("path %v emits %v, want %d tokens of %v", path, emitted, c.TreeRound.AcceptLength, c.Greedy[1:8])
			}
			return nil
		})
	}
}

func (p *pair) growTree(want *treeRound) error {
	const k = 4
	nodes := want.Candidates
	rowOf, set := map[int]int{}, map[int]uint64{} // by candidate: its row in the last pass, its ancestors
	parentRows := []int32{p.lastRow()}
	beams := []int{-1} // candidates whose rows ran last; -1 is the root
	next, scratch := 0, 0
	for step, following := range want.BeamsPerStep {
		logits := p.d.Logits(parentRows)
		for i, beam := range beams {
			ids, logprobs := top(logits.F32Row(i), k)
			score := float32(1)
			if beam >= 0 {
				score = nodes.Scores[beam]
			}
			for j, id := range ids {
				if p.d.TargetToken(id) != nodes.Tokens[next] || nodes.Parents[next] != beam {
					return fmt.Errorf("candidate %d is %d under %d, want %d under %d",
						next, p.d.TargetToken(id), beam, nodes.Tokens[next], nodes.Parents[next])
				}
				got := score * float32(math.Exp(float64(logprobs[j])))
				if err := modeltest.Near(fmt.Sprintf("score of candidate %d", next), []float32{got}, nodes.Scores[next:next+1], 2e-3); err != nil {
					return err
				}
				next++
			}
		}
		if step == len(want.BeamsPerStep)-1 {
			break
		}
		var tokens, parents []int32
		var sets []uint64
		for i, candidate := range following {
			parent := nodes.Parents[candidate]
			row, ancestors := int(p.lastRow()), uint64(0)
			if parent >= 0 {
				row, ancestors = rowOf[parent], set[parent]
			}
			set[candidate] = ancestors | 1<<(scratch+i)
			tokens, parents, sets = append(tokens, nodes.Tokens[candidate]), append(parents, int32(row)), append(sets, set[candidate])
		}
		var b kernels.Batch
		if err := p.seq.AppendTree(&b, tokens, sets); err != nil {
			return err
		}
		p.rows = p.d.Step(&b, parents)
		parentRows = parentRows[:0]
		for i, candidate := range following {
			rowOf[candidate] = i
			parentRows = append(parentRows, int32(i))
		}
		beams, scratch = following, scratch+len(following)
	}
	p.seq.Rollback()
	return p.Rank.Backend.Sync()
}
