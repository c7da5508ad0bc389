package speculation

import (
	"fmt"
	"math"
)

// Sampler chooses the tokens of one sequence. It has observed exactly the tokens
// whose positions are in the cache; the root of a tree is not among them.
type Sampler struct {
	params   Params
	bias     []tokenBias
	vocab    int
	work     *Workspace
	tally    tally
	observed int
}

// NewSampler starts a sequence. The workspace may be shared by the Samplers of
// one thread.
func NewSampler(p Params, vocab int, work *Workspace) (*Sampler, error) {
	if err := p.Validate(vocab); err != nil {
		return nil, err
	}
	work.reserve(vocab)
	return &Sampler{params: p, bias: p.biases(), vocab: vocab, work: work, tally: tally{prompt: int(p.PromptTokens)}}, nil
}

// Observe tells the sampler what tokens came next: chunks of the prompt, and
// after a verify the tokens of the nodes that were kept.
func (s *Sampler) Observe(tokens ...int32) {
	s.observed += len(tokens)
	if !s.params.penalises() {
		return
	}
	for _, token := range tokens {
		s.tally.add(token)
	}
}

// Observed is the number of tokens observed, which is the position of the next root.
func (s *Sampler) Observed() int { return s.observed }

// Token is one chosen token. Logprob and Top are of the model's own distribution,
// before any processing, and are there when Params.Logprobs is 0 or more.
type Token struct {
	ID      int32
	Logprob float32
	Top     []Candidate // the likeliest tokens, best first
}

// LogitsError says that a row of logits cannot be used; the request that owns it
// ends, nothing else does.
type LogitsError struct {
	Position int // of the token that was to be chosen
	Token    int32
	Value    float32
}

func (e *LogitsError) Error() string {
	if math.IsInf(float64(e.Value), -1) {
		return fmt.Sprintf("no token is left to choose at position %d", e.Position)
	}
	return fmt.Sprintf("logit of token %d for position %d is %v", e.Token, e.Position, e.Value)
}

// First chooses the token after the observed ones from the logits of the last of them.
func (s *Sampler) First(logits []float32) (Token, error) {
	return s.choose(logits, s.observed)
}

// Verdict is what a verify pass came to.
type Verdict struct {
	Path   []uint8 // the accepted nodes, node 0 first
	Tokens []Token // those of Path[1:], and one of the target's own
}

// Verify walks the tree: at each node it chooses a token from the target's
// logits and goes on to the child that carries it, until there is none. The
// token chosen at a node does not depend on the children, so neither does the
// output.
func (s *Sampler) Verify(tree *Tree, logits func(node int) []float32) (Verdict, error) {
	var verdict Verdict
	counting := s.params.penalises()
	for node := 0; node >= 0; {
		if counting {
			s.tally.add(tree.Tokens[node])
			defer s.tally.remove(tree.Tokens[node])
		}
		token, err := s.choose(logits(node), s.observed+int(tree.Depths[node])+1)
		if err != nil {
			return Verdict{}, err
		}
		verdict.Path = append(verdict.Path, uint8(node))
		verdict.Tokens = append(verdict.Tokens, token)
		node = tree.Child(node, token.ID)
	}
	return verdict, nil
}

// choose picks the token for a position from the logits of the one before it.
func (s *Sampler) choose(logits []float32, position int) (Token, error) {
	if len(logits) != s.vocab {
		panic(fmt.Sprintf("speculation: %d logits for a vocabulary of %d", len(logits), s.vocab))
	}
	for token, logit := range logits {
		if logit-logit != 0 { // NaN or an infinity
			return Token{}, &LogitsError{Position: position, Token: int32(token), Value: logit}
		}
	}
	processed := s.process(logits)
	id := largest(processed)
	// Large penalties can overflow what was finite.
	if top := processed[id]; top-top != 0 {
		return Token{}, &LogitsError{Position: position, Token: id, Value: top}
	}
	if s.params.Temperature > 0 {
		id = draw(&s.params, s.work, processed, uniform(s.params.Seed, position))
	}
	return s.describe(logits, id), nil
}

// process applies penalties and bias. Where there are none it returns logits
// themselves.
func (s *Sampler) process(logits []float32) []float32 {
	if !s.params.penalises() && len(s.bias) == 0 {
		return logits
	}
	processed := s.work.logits[:s.vocab]
	copy(processed, logits)
	if s.params.penalises() {
		s.tally.penalise(&s.params, processed)
	}
	for _, b := range s.bias {
		processed[b.token] += b.bias
	}
	return processed
}

// describe adds the log-probabilities that were asked for.
func (s *Sampler) describe(logits []float32, id int32) Token {
	token := Token{ID: id}
	if s.params.Logprobs < 0 {
		return token
	}
	ids := s.work.every(s.vocab)
	total := weigh(1, s.work.weights, logits, ids)
	logSum := float64(logits[largest(logits)]) + math.Log(total)
	logprob := func(id int32) float32 { return float32(float64(logits[id]) - logSum) }

	token.Logprob = logprob(id)
	for _, id := range selectTop(logits, ids, int(s.params.Logprobs)) {
		token.Top = append(token.Top, Candidate{Token: id, Logprob: logprob(id)})
	}
	return token
}

// IDs returns the bare ids of a verdict.
func (v *Verdict) IDs() []int32 {
	ids := make([]int32, len(v.Tokens))
	for i, token := range v.Tokens {
		ids[i] = token.ID
	}
	return ids
}
