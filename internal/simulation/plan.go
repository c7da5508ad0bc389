package simulation

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/octet-run/octet/actors/lifecycle"
	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/collectives"
	"github.com/octet-run/octet/coordinator"
	"github.com/octet-run/octet/rank"
	"github.com/octet-run/octet/speculation"
)

// plan is what a seed makes of the world before any fault: its sizes and its users.
type plan struct {
	ranks, batch, blocks, chunk, replays int
	restart                              lifecycle.Restart
	collective                           collectives.Plan
	firstOp                              uint32
	requests                             []requestPlan
	// jump is by how much the wall clock jumps, and when.
	jump   time.Duration
	jumpAt time.Duration
}

type requestPlan struct {
	request coordinator.Request
	begins  time.Duration
	limit   time.Duration
}

const (
	contextTokens = 200
	verifyRows    = 48
)

func (p *plan) rows() int { return p.chunk + verifyRows }

func (p *plan) engine() rank.Config {
	return rank.Config{Slots: p.batch, Blocks: p.blocks, Context: contextTokens, MaxRows: p.rows()}
}

func drawPlan(r *rand.Rand) (plan, error) {
	p := plan{
		ranks: 2 + r.IntN(3), batch: 1 + r.IntN(3), chunk: 8 + r.IntN(25), replays: 1 + r.IntN(8),
		restart: lifecycle.Restart{Max: 1 + r.IntN(6), Window: between(r, 100*time.Millisecond, 10*time.Second), Pause: 20 * time.Millisecond, MaxPause: 100 * time.Millisecond},
	}
	if r.IntN(16) == 0 {
		p.ranks = 8
	}
	p.blocks = 9 + r.IntN(20)
	if r.IntN(4) == 0 {
		p.firstOp = math.MaxUint32 - uint32(r.IntN(60)) // operation numbers wrap
	}
	if r.IntN(5) == 0 {
		p.jump = time.Duration(r.Int64N(int64(2*time.Hour))) - time.Hour
		p.jumpAt = time.Duration(r.Int64N(int64(30 * time.Millisecond)))
	}
	if err := p.restart.Validate(); err != nil {
		return p, err
	}
	var err error
	p.collective, err = drawCollective(r, p.ranks)
	for i := range 2 + r.IntN(4) {
		p.requests = append(p.requests, drawRequest(r, i))
	}
	return p, err
}

// drawCollective picks one algorithm for everything, where it admits that.
func drawCollective(r *rand.Rand, ranks int) (collectives.Plan, error) {
	shape := collectives.Shape{Ranks: ranks, Coherent: true}
	all := collectives.Algorithms()
	a := all[r.IntN(len(all))]
	if !a.Exact || a.Admits(shape, collectives.Payload{Rows: 1, Width: pieces}) != nil {
		a = all[0]
	}
	plan, err := collectives.DefaultPlan(shape, false)
	plan.Choices = append([]collectives.Choice{{Algorithm: a.Name, Why: "drawn"}}, plan.Choices...)
	return plan, err
}

func drawRequest(r *rand.Rand, i int) requestPlan {
	q := requestPlan{begins: time.Duration(r.Int64N(int64(15 * time.Millisecond)))}
	q.request = coordinator.Request{
		ID: fmt.Sprintf("request-%d", i), MaxTokens: 3 + r.IntN(28),
		Sampling: round.Sampling{Logprobs: -1}, Drafting: coordinator.Drafting{Mode: coordinator.ModeNGram, Shape: speculation.Chain(1 + r.IntN(4))},
	}
	for range 2 + r.IntN(34) {
		q.request.Prompt = append(q.request.Prompt, int32(r.IntN(vocab)))
	}
	if r.IntN(4) == 0 {
		q.request.Drafting.Mode = coordinator.ModeOff
	}
	if r.IntN(2) == 0 {
		q.request.Sampling = round.Sampling{
			Temperature: 0.9, TopK: 12, TopP: 0.95, Seed: r.Uint64(), Logprobs: -1, FrequencyPenalty: 0.2,
		}
	}
	if r.IntN(2) == 0 {
		q.request.StopIDs = []int32{pick(r, q.request.Prompt...)} // one that may be drafted
	}
	if r.IntN(8) == 0 {
		q.limit = 3*time.Millisecond + time.Duration(r.Int64N(int64(300*time.Millisecond)))
	}
	return q
}

// expected is what a request must get, by the model and the sampler alone.
func expected(q *coordinator.Request) ([]int32, error) {
	s := q.Sampling
	sampler, err := speculation.NewSampler(speculation.Params{
		Temperature: s.Temperature, TopK: s.TopK, TopP: s.TopP, MinP: s.MinP, Seed: s.Seed,
		FrequencyPenalty: s.FrequencyPenalty, Logprobs: s.Logprobs, PromptTokens: int32(len(q.Prompt)),
	}, vocab, &speculation.Workspace{})
	if err != nil {
		return nil, err
	}
	here, prev := cell{}, int32(0)
	read := func(token int32) {
		prev, here = here.token, here.next(token)
		sampler.Observe(token)
	}
	for _, token := range q.Prompt {
		read(token)
	}
	var tokens []int32
	for len(tokens) < q.MaxTokens {
		value := here.value(prev)
		for range layerCount {
			value = mix(value)
		}
		logits := make([]float32, vocab)
		for i := range logits {
			logits[i] = logit(value, i)
		}
		token, err := sampler.First(logits)
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, token.ID)
		if len(q.StopIDs) > 0 && token.ID == q.StopIDs[0] {
			break
		}
		read(token.ID)
	}
	return tokens, nil
}
