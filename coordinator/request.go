package coordinator

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/speculation"
)

// Request is one prompt to continue.
type Request struct {
	// ID names the request to clients; empty: one is made up.
	ID string
	// Resume is how many tokens the client has of an earlier request with this ID.
	// Where the log still has that request, it goes on from the log, with the same
	// seed; otherwise it is generated anew. Events start at this offset.
	Resume int
	Prompt []int32
	// MaxTokens is how many tokens to generate at most; 0: as many as fit.
	MaxTokens int
	Stop      []string // stop strings
	StopIDs   []int32  // stop tokens besides the model's
	IgnoreEOS bool     // the model's end tokens are tokens like any other
	// Sampling as on the wire. Logprobs -1 is none. PromptTokens is the
	// coordinator's to fill.
	Sampling round.Sampling
	Drafting Drafting
}

// RandomSeed is a seed for requests that bring none.
func RandomSeed() uint64 { return rand.Uint64() }

// normalise checks a request against the limits and fills in what it leaves open.
func (c *Config) normalise(r *Request) error {
	if len(r.Prompt) == 0 {
		return refuse("prompt", "is empty")
	}
	for i, token := range r.Prompt {
		if token < 0 || int(token) >= c.Vocab {
			return refuse("prompt", "has token %d at position %d, the vocabulary has %d", token, i, c.Vocab)
		}
	}
	if len(r.Prompt) >= c.Context {
		return refuse("prompt", "has %d tokens, the context of %d leaves no room to generate", len(r.Prompt), c.Context)
	}
	room := c.Context - len(r.Prompt)
	switch {
	case r.MaxTokens < 0:
		return refuse("max_tokens", "must be positive, got %d", r.MaxTokens)
	case r.MaxTokens == 0:
		r.MaxTokens = min(room, max(1, c.Blocks*c.BlockTokens-len(r.Prompt)-speculation.MaxNodes))
	case r.MaxTokens > room:
		return refuse("max_tokens", "of %d and a prompt of %d tokens exceed the context of %d", r.MaxTokens, len(r.Prompt), c.Context)
	}
	if need := c.blocksFor(r); need > c.Blocks {
		return refuse("max_tokens", "and the prompt need %d KV blocks, the group has %d", need, c.Blocks)
	}
	if len(r.Stop) > 0 && c.Tokenizer == nil {
		return refuse("stop", "needs a tokenizer, and this model came without one")
	}
	for _, stop := range r.Stop {
		if stop == "" {
			return refuse("stop", "must not contain an empty string")
		}
	}
	r.Sampling.PromptTokens = int32(len(r.Prompt))
	if err := checkSampling(&r.Sampling, c.Vocab); err != nil {
		return err
	}
	if r.ID == "" {
		r.ID = fmt.Sprintf("req-%016x", rand.Uint64())
	}
	return c.normaliseDrafting(&r.Drafting)
}

func (c *Config) normaliseDrafting(d *Drafting) error {
	if d.Mode == ModeDefault {
		d.Mode = c.Drafting.Mode
	}
	if d.Shape.IsZero() {
		d.Shape = c.Drafting.Shape
	}
	if err := d.Shape.Validate(); err != nil {
		return refuse("speculation", "%v", err)
	}
	if d.Shape.Nodes > c.VerifyRows {
		return refuse("speculation", "%v has more tokens than the %d rows of a verify pass", d.Shape, c.VerifyRows)
	}
	if d.Mode == ModeEagle3 && !c.Eagle3 {
		return refuse("speculation", "eagle3 needs a drafter, and this group has none")
	}
	return nil
}

// blocksFor is the KV blocks that a request can come to need: its prompt, its
// output, and a tree that reaches beyond.
func (c *Config) blocksFor(r *Request) int {
	positions := len(r.Prompt) + r.MaxTokens + speculation.MaxNodes
	return (min(positions, c.Context+speculation.MaxNodes) + c.BlockTokens - 1) / c.BlockTokens
}

// What a request may bring and ask for, so that the frames of a full batch fit the
// memory that is set aside for them: alternatives a token, and biased tokens.
const (
	maxLogprobs = 128
	maxBiases   = 1024
)

// checkSampling holds the parameters against the ranges that the ranks enforce.
func checkSampling(s *round.Sampling, vocab int) error {
	if s.Logprobs > maxLogprobs {
		return refuse("logprobs", "must be at most %d, got %d", maxLogprobs, s.Logprobs)
	}
	if len(s.LogitBias) > maxBiases {
		return refuse("logit_bias", "must name at most %d tokens, got %d", maxBiases, len(s.LogitBias))
	}
	params := speculation.Params{
		Temperature: s.Temperature, TopK: s.TopK, TopP: s.TopP, MinP: s.MinP, Seed: s.Seed,
		RepetitionPenalty: s.RepetitionPenalty, PresencePenalty: s.PresencePenalty, FrequencyPenalty: s.FrequencyPenalty,
		LogitBias: s.LogitBias, Logprobs: s.Logprobs, PromptTokens: s.PromptTokens,
	}
	return params.Validate(vocab)
}

// FinishReason says why a request ended.
type FinishReason uint8

// The reasons.
const (
	FinishStop FinishReason = 1 + iota
	FinishLength
	FinishCancelled
	FinishDeadline
	FinishError
)

// The reasons as clients see them.
var finishNames = [...]string{FinishStop: "stop", FinishLength: "length", FinishCancelled: "cancelled", FinishDeadline: "deadline", FinishError: "error"}

func (r FinishReason) String() string { return finishNames[r] }

// Token is one generated token as it is delivered.
type Token struct {
	ID int32
	// Logprobs is nil unless asked for.
	Logprobs *round.TokenLogprobs
	// Start is where the token's text begins in the generated text, in bytes.
	Start int
}

// Finish is the end of a request. Tokens, counts and text end at one boundary.
type Finish struct {
	Reason FinishReason
	Err    error  // for FinishError
	Stop   string // the stop string that matched, or the text of the stop token

	PromptTokens    int
	GeneratedTokens int // tokens delivered
	// Accepted is the tokens that each decode round delivered; the prefill's token
	// is in no round.
	Accepted []int
	Drafted  int // tokens drafted in all rounds
	Replays  int
	Timings  RequestTimings
}

// Rounds is the number of decode rounds.
func (f *Finish) Rounds() int { return len(f.Accepted) }

// RequestTimings says where a request's time went.
type RequestTimings struct {
	Queued     time.Duration // before its first round
	Prefill    time.Duration // to its first token
	Decode     time.Duration
	FirstToken time.Duration // from submission; 0: none came
}

// Event is one step of a request's stream.
type Event struct {
	Offset int // of the first of Tokens among the generated ones
	Tokens []Token
	// Text is what is certain now; it may lag behind Tokens by an unfinished
	// character or a possible stop string.
	Text   string
	Finish *Finish // the last event
}
