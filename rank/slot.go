package rank

import (
	"fmt"

	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/model/kvcache"
	"github.com/octet-run/octet/speculation"
)

// slot is one sequence while it lives in this epoch.
type slot struct {
	request uint64
	cache   *kvcache.Sequence
	// tree is what the last round verified, until the coordinator says what of it
	// was kept; nil after a chunk.
	tree *speculation.Tree

	sampler  *speculation.Sampler // rank 0
	ngram    *speculation.NGram   // rank 0, where n-gram drafts were asked for
	history  []int32              // rank 0: tokens at the positions of the cache
	logprobs bool                 // of emitted tokens are wanted
	draft    *draftState          // ranks that draft
}

// release gives back everything that the slot holds.
func (e *Engine) release(s *slot) {
	s.cache.Release()
	if s.draft != nil {
		e.drafting.close(s.draft)
	}
}

// params is a request's sampling as speculation knows it.
func params(s *round.Sampling) speculation.Params {
	return speculation.Params{
		Temperature: s.Temperature, TopK: s.TopK, TopP: s.TopP, MinP: s.MinP, Seed: s.Seed,
		RepetitionPenalty: s.RepetitionPenalty, PresencePenalty: s.PresencePenalty, FrequencyPenalty: s.FrequencyPenalty,
		LogitBias: s.LogitBias, Logprobs: s.Logprobs, PromptTokens: s.PromptTokens,
	}
}

// begin starts a sequence in a slot that is free.
func (e *Engine) begin(entry *round.Entry) (*slot, error) {
	s := &slot{request: entry.Request, cache: e.cache.NewSequence(), logprobs: entry.Sampling.Logprobs >= 0}
	if e.rank == 0 {
		sampler, err := speculation.NewSampler(params(entry.Sampling), e.target.Config().Vocab, &e.workspace)
		if err != nil {
			return nil, fmt.Errorf("request %d: %w", entry.Request, err)
		}
		s.sampler = sampler
	}
	if e.drafting != nil && entry.Draft.By == round.Eagle3 {
		s.draft = e.drafting.open()
	}
	return s, nil
}

// observe tells everything on rank 0 that follows the tokens what came next.
func (s *slot) observe(tokens []int32) {
	if s.sampler == nil {
		return
	}
	s.sampler.Observe(tokens...)
	if s.ngram != nil {
		s.ngram.Observe(tokens...)
	}
	s.history = append(s.history, tokens...)
}

// lookup is the slot's n-gram drafter, fed with all that the sequence has.
func (s *slot) lookup() *speculation.NGram {
	if s.ngram == nil {
		s.ngram = speculation.NewNGram(ngramMatch)
		s.ngram.Observe(s.history...)
	}
	return s.ngram
}

// ngramMatch is how many tokens must repeat before n-gram lookup proposes.
const ngramMatch = 2
