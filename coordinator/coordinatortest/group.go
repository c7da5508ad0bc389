package coordinatortest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/speculation"
)

// Group is a group of ranks in one value. Set the exported fields before the first
// round.
type Group struct {
	Model       Model
	Drafter     Model // what the network believes the model to be; nil: Model
	Vocab       int
	Blocks      int
	BlockTokens int
	// Before runs before each round; an error breaks the group, and ctx's error
	// comes back as it is.
	Before func(ctx context.Context, r *round.Round) error
	// Cost is how long a round takes; nil: no time.
	Cost func(r *round.Round) (draft, verify time.Duration)

	mu        sync.Mutex
	epoch     uint32
	broken    bool
	gone      error
	seq       uint64
	sequences map[uint16]*sequence
	rounds    []*round.Round
	work      speculation.Workspace
}

// sequence is one slot.
type sequence struct {
	request  uint64
	logprobs bool    // asked for
	cache    []int32 // the token at each position
	sampler  *speculation.Sampler
	lookup   *speculation.NGram
	tree     *speculation.Tree // of the last verify
}

// WaitServing implements coordinator.Group: a broken group comes back under the next epoch.
func (g *Group) WaitServing(ctx context.Context) (uint32, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gone != nil {
		return 0, g.gone
	}
	if g.epoch == 0 || g.broken {
		g.epoch++
		g.broken, g.seq = false, 0
		g.sequences = make(map[uint16]*sequence)
	}
	return g.epoch, ctx.Err()
}

// Break implements coordinator.Group.
func (g *Group) Break(int, string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.broken = true
}

// Epoch implements coordinator.Group.
func (g *Group) Epoch() uint32 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.broken || g.gone != nil {
		return 0
	}
	return g.epoch
}

// Err implements coordinator.Group.
func (g *Group) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.gone
}

// Give ends the group for good: it is gone because of err from now on.
func (g *Group) Give(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gone = err
}

// FreeBlocks is the blocks that no sequence holds.
func (g *Group) FreeBlocks() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.Blocks - g.used(0)
}

// Rounds returns the rounds so far.
func (g *Group) Rounds() []*round.Round {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.rounds)
}

// used is the blocks in use, extra positions in each sequence included.
func (g *Group) used(extra int) int {
	blocks := 0
	for _, s := range g.sequences {
		blocks += (len(s.cache) + extra + g.BlockTokens - 1) / g.BlockTokens
	}
	return blocks
}

// Do implements coordinator.Group.
func (g *Group) Do(ctx context.Context, r *round.Round) (*round.Result, error) {
	if g.Before != nil {
		if err := g.Before(ctx, r); err != nil {
			g.mu.Lock()
			g.broken = true
			g.mu.Unlock()
			return nil, err
		}
	}
	result, err := g.run(r)
	if err != nil {
		return nil, err
	}
	if g.Cost != nil {
		draft, verify := g.Cost(r)
		result.Timings = round.Timings{Draft: int64(draft), Total: int64(draft + verify)}
		select {
		case <-time.After(draft + verify):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return result, nil
}

func (g *Group) run(r *round.Round) (*round.Result, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rounds = append(g.rounds, r)
	g.seq++
	if r.Epoch != g.epoch {
		return nil, g.fail("a round of epoch %d came in epoch %d", r.Epoch, g.epoch)
	}
	result := &round.Result{Epoch: r.Epoch, Seq: g.seq}
	seen := make(map[uint16]bool)
	for i := range r.Entries {
		e := &r.Entries[i]
		if seen[e.Slot] {
			return nil, g.fail("slot %d is twice in one round", e.Slot)
		}
		seen[e.Slot] = true
		outcome, err := g.entry(e)
		if err != nil {
			return nil, err
		}
		outcome.Slot = e.Slot
		result.Outcomes = append(result.Outcomes, outcome)
	}
	if used := g.used(0); used > g.Blocks {
		return nil, g.fail("%d blocks are in use, there are %d", used, g.Blocks)
	}
	return result, nil
}

// fail breaks the group because the contract of rounds was broken.
func (g *Group) fail(format string, args ...any) error {
	g.broken = true
	return fmt.Errorf("contract of rounds: "+format, args...)
}

func (g *Group) entry(e *round.Entry) (round.Outcome, error) {
	s, known := g.sequences[e.Slot]
	if e.Kind == round.Release {
		if !known {
			return round.Outcome{}, g.fail("slot %d is released and unknown", e.Slot)
		}
		delete(g.sequences, e.Slot)
		return round.Outcome{}, nil
	}
	if !known {
		var err error
		if s, err = g.introduce(e); err != nil {
			return round.Outcome{}, err
		}
	} else if s.request != e.Request || e.Sampling != nil {
		return round.Outcome{}, g.fail("slot %d belongs to request %d, not to %d", e.Slot, s.request, e.Request)
	}
	if err := g.commit(s, e); err != nil {
		return round.Outcome{}, err
	}
	switch e.Kind {
	case round.Decode:
		return g.decode(s, e)
	case round.Score:
		return g.score(s, e), nil
	}
	return g.prefill(s, e), nil
}

func (g *Group) introduce(e *round.Entry) (*sequence, error) {
	if e.Sampling == nil || e.Committed != 0 {
		return nil, g.fail("slot %d starts at position %d, sampling given: %v", e.Slot, e.Committed, e.Sampling != nil)
	}
	w := e.Sampling
	sampler, err := speculation.NewSampler(speculation.Params{
		Temperature: w.Temperature, TopK: w.TopK, TopP: w.TopP, MinP: w.MinP, Seed: w.Seed,
		RepetitionPenalty: w.RepetitionPenalty, PresencePenalty: w.PresencePenalty, FrequencyPenalty: w.FrequencyPenalty,
		LogitBias: w.LogitBias, Logprobs: w.Logprobs, PromptTokens: w.PromptTokens,
	}, g.Vocab, &g.work)
	if err != nil {
		return nil, g.fail("slot %d: %v", e.Slot, err)
	}
	s := &sequence{request: e.Request, logprobs: w.Logprobs >= 0, sampler: sampler, lookup: speculation.NewNGram(1)}
	g.sequences[e.Slot] = s
	return s, nil
}

// commit applies the path that the coordinator kept of the last verify.
func (g *Group) commit(s *sequence, e *round.Entry) error {
	for _, node := range e.Accepted {
		if s.tree == nil || int(node) >= s.tree.Len() {
			return g.fail("slot %d commits node %d of no tree", e.Slot, node)
		}
		s.observe(s.tree.Tokens[node])
	}
	s.tree = nil
	if int(e.Committed) != len(s.cache) {
		return g.fail("slot %d has %d positions, the entry says %d", e.Slot, len(s.cache), e.Committed)
	}
	return nil
}

func (s *sequence) observe(tokens ...int32) {
	s.cache = append(s.cache, tokens...)
	s.sampler.Observe(tokens...)
	s.lookup.Observe(tokens...)
}

func (g *Group) prefill(s *sequence, e *round.Entry) round.Outcome {
	s.observe(e.Tokens...)
	if !e.Last {
		return round.Outcome{}
	}
	token, err := s.sampler.First(g.Model(s.cache))
	if err != nil {
		return round.Outcome{Error: err.Error()}
	}
	return s.emitted([]speculation.Token{token})
}

func (g *Group) score(s *sequence, e *round.Entry) round.Outcome {
	var outcome round.Outcome
	for _, token := range e.Tokens {
		s.observe(token)
		outcome.Logits = g.Model(s.cache)
		outcome.Argmax = append(outcome.Argmax, int32(slices.Index(outcome.Logits, slices.Max(outcome.Logits))))
	}
	return outcome
}

func (g *Group) decode(s *sequence, e *round.Entry) (round.Outcome, error) {
	if len(e.Tokens) != 1 {
		return round.Outcome{}, g.fail("slot %d decodes from %d roots", e.Slot, len(e.Tokens))
	}
	tree, err := g.draft(s, e)
	if err != nil {
		return round.Outcome{}, g.fail("slot %d: %v", e.Slot, err)
	}
	if used := g.used(0) + (tree.Len()+g.BlockTokens-1)/g.BlockTokens; used > g.Blocks {
		return round.Outcome{}, g.fail("slot %d's tree needs block %d of %d", e.Slot, used, g.Blocks)
	}
	s.tree = tree
	verdict, err := s.sampler.Verify(tree, func(node int) []float32 {
		context := slices.Clone(s.cache)
		for _, n := range tree.Path(node) {
			context = append(context, tree.Tokens[n])
		}
		return g.Model(context)
	})
	if err != nil {
		return round.Outcome{Error: err.Error()}, nil
	}
	outcome := s.emitted(verdict.Tokens)
	outcome.Path = verdict.Path
	outcome.Drafted = uint8(tree.Len() - 1)
	return outcome, nil
}

func (g *Group) draft(s *sequence, e *round.Entry) (*speculation.Tree, error) {
	root := e.Tokens[0]
	switch e.Draft.By {
	case round.NGram:
		return speculation.NewChain(root, s.lookup.Draft(root, int(e.Draft.Steps))), nil
	case round.Eagle3:
		return g.grow(append(slices.Clone(s.cache), root), e.Draft)
	}
	return speculation.NewTree(root), nil
}

// grow drafts a tree as the network does.
func (g *Group) grow(context []int32, d round.Draft) (*speculation.Tree, error) {
	shape := speculation.Shape{TopK: int(d.TopK), Steps: int(d.Steps), Nodes: int(d.Nodes)}
	b, err := speculation.NewBuilder(shape, context[len(context)-1])
	if err != nil {
		return nil, err
	}
	var paths [][]int32 // what each row handed out has consumed
	drafter := g.Drafter
	if drafter == nil {
		drafter = g.Model
	}
	rows := [][]speculation.Candidate{candidates(drafter, context, shape.TopK)}
	for {
		if err := b.Expand(rows...); err != nil {
			return nil, err
		}
		if b.Done() {
			return b.Tree(), nil
		}
		rows = rows[:0]
		for _, line := range b.Beam() {
			path := context
			if line.Parent >= 0 {
				path = paths[line.Parent]
			}
			path = append(slices.Clone(path), line.Token)
			rows = append(rows, candidates(drafter, path, shape.TopK))
			paths = append(paths, path)
		}
	}
}

func (s *sequence) emitted(tokens []speculation.Token) round.Outcome {
	var outcome round.Outcome
	for _, token := range tokens {
		outcome.Tokens = append(outcome.Tokens, token.ID)
		if !s.logprobs {
			continue
		}
		logprobs := round.TokenLogprobs{Token: token.ID, Logprob: token.Logprob}
		for _, top := range token.Top {
			logprobs.Top = append(logprobs.Top, round.TokenLogprob{Token: top.Token, Logprob: top.Logprob})
		}
		outcome.Logprobs = append(outcome.Logprobs, logprobs)
	}
	return outcome
}
