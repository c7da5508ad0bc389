package rank

import (
	"fmt"
	"slices"

	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/speculation"
)

// accept proposes what every entry emits. A fault of one entry's logits is that
// entry's alone.
func (e *Engine) accept(r *round.Round, trees []*speculation.Tree, p *pass) []round.Outcome {
	outcomes := make([]round.Outcome, len(r.Entries))
	for i := range r.Entries {
		entry := &r.Entries[i]
		outcomes[i].Slot = entry.Slot
		if entry.Kind == round.Release {
			continue
		}
		if err := e.acceptEntry(&outcomes[i], entry, trees[i], p, p.spans[i]); err != nil {
			outcomes[i] = round.Outcome{Slot: entry.Slot, Error: err.Error()}
		}
	}
	return outcomes
}

func (e *Engine) acceptEntry(o *round.Outcome, entry *round.Entry, tree *speculation.Tree, p *pass, at span) error {
	row := func(i int) []float32 { return p.logits.F32Row(at.firstLogit + i) }
	sampler := e.slots[entry.Slot].sampler
	switch {
	case entry.Kind == round.Decode:
		verdict, err := sampler.Verify(tree, row)
		if err != nil {
			return err
		}
		o.Path, o.Tokens, o.Drafted = verdict.Path, verdict.IDs(), uint8(tree.Len()-1)
		o.Logprobs = logprobs(verdict.Tokens, e.wantsLogprobs(entry))
	case entry.Kind == round.Score:
		for i := range at.logits {
			token, err := likeliest(row(i))
			if err != nil {
				return fmt.Errorf("position %d: %w", int(entry.Committed)+i, err)
			}
			o.Argmax = append(o.Argmax, token)
		}
		if entry.Last {
			o.Logits = slices.Clone(row(at.logits - 1))
		}
	case entry.Last:
		token, err := sampler.First(row(0))
		if err != nil {
			return err
		}
		o.Tokens = []int32{token.ID}
		o.Logprobs = logprobs([]speculation.Token{token}, e.wantsLogprobs(entry))
	}
	return nil
}

func (e *Engine) wantsLogprobs(entry *round.Entry) bool { return e.slots[entry.Slot].logprobs }

func logprobs(tokens []speculation.Token, wanted bool) []round.TokenLogprobs {
	if !wanted {
		return nil
	}
	list := make([]round.TokenLogprobs, len(tokens))
	for i, t := range tokens {
		list[i] = round.TokenLogprobs{Token: t.ID, Logprob: t.Logprob}
		for _, c := range t.Top {
			list[i].Top = append(list[i].Top, round.TokenLogprob{Token: c.Token, Logprob: c.Logprob})
		}
	}
	return list
}

// likeliest is the token with the largest logit, the lowest on ties.
func likeliest(logits []float32) (int32, error) {
	best := 0
	for token, logit := range logits {
		if logit != logit {
			return 0, fmt.Errorf("logit of token %d is not a number", token)
		}
		if logit > logits[best] {
			best = token
		}
	}
	return int32(best), nil
}
