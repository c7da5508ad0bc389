package simulation

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
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
	// leastBlocks is room for the largest request that is drawn, and what a draft may
	// add to it.
	leastBlocks = 9
	// eos ends a text, unless the request ignores it.
	eos = vocab - 1
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
	p.blocks = leastBlocks + r.IntN(20)
	if r.IntN(3) == 0 { // requests wait for each other's blocks
		p.blocks, p.batch = leastBlocks, 3
	}
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
		if err != nil {
			break
		}
		var q requestPlan
		q, err = drawRequest(r, i)
		p.requests = append(p.requests, q)
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

func drawRequest(r *rand.Rand, i int) (requestPlan, error) {
	q := requestPlan{begins: time.Duration(r.Int64N(int64(15 * time.Millisecond)))}
	q.request = coordinator.Request{
		ID: fmt.Sprintf("request-%d", i), MaxTokens: 3 + r.IntN(28),
		Sampling: round.Sampling{Logprobs: -1}, Drafting: coordinator.Drafting{Mode: coordinator.ModeNGram, Shape: speculation.Chain(1 + r.IntN(4))},
	}
	if err := drawPrompt(r, &q.request); err != nil {
		return q, err
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
	q.request.IgnoreEOS = r.IntN(2) == 0
	if r.IntN(8) == 0 {
		q.limit = 3*time.Millisecond + time.Duration(r.Int64N(int64(300*time.Millisecond)))
	}
	return q, nil
}

// drawPrompt draws what a request begins with: random tokens, and often what the
// model says after them. Then what it goes on to say has been said before, so that
// drafts are long and accepted, over stops and ends of text, too.
func drawPrompt(r *rand.Rand, q *coordinator.Request) error {
	random, own := 2+r.IntN(34), 0
	if r.IntN(2) == 0 {
		random, own = 2+r.IntN(6), 4+r.IntN(24)
	}
	for range random {
		q.Prompt = append(q.Prompt, int32(r.IntN(vocab)))
	}
	text, err := expected(&coordinator.Request{
		Prompt: q.Prompt, MaxTokens: own, IgnoreEOS: true, Sampling: round.Sampling{Logprobs: -1},
	})
	q.Prompt = append(q.Prompt, text...)
	return err
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
		if slices.Contains(q.StopIDs, token.ID) || token.ID == eos && !q.IgnoreEOS {
			break
		}
		read(token.ID)
	}
	return tokens, nil
}
