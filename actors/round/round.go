package round

// Kind is what an Entry asks for.
type Kind uint8

const (
	// Prefill runs a chunk of the prompt (or of a replay) through the target.
	Prefill Kind = 1 + iota
	// Decode drafts, verifies and proposes an acceptance.
	Decode
	// Release forgets a sequence and frees its cache.
	Release
	// Score runs a chunk and returns the argmax of every row (octet logits).
	Score
)

// Round is one frame from the coordinator to every rank.
type Round struct {
	Epoch   uint32
	Seq     uint64 // number of the round in this epoch, from 1
	Entries []Entry
}

// Drafter is who proposes tokens for an entry.
type Drafter uint8

// The drafters that a round can ask for.
const (
	NoDraft Drafter = iota
	Eagle3
	NGram
)

// Draft is the tree that an entry asks for. A chain has TopK 1 and Nodes Steps+1.
type Draft struct {
	By    Drafter
	TopK  uint8
	Steps uint8
	Nodes uint8 // tokens per verify, root included, at most 64
}

// Entry is one sequence's part of a round.
type Entry struct {
	Kind    Kind
	Slot    uint16 // the group's name for the sequence while it lives
	Request uint64 // the coordinator's name for it, for logs and errors

	// Committed is how many positions of the sequence are in the cache once
	// Accepted is applied: the position of Tokens[0].
	Committed uint32
	// Accepted is the path of tree nodes of the sequence's previous verify that
	// the coordinator kept, node 0 first. Empty after a prefill chunk.
	Accepted []uint8
	// Tokens is the chunk (Prefill, Score) or the one root token (Decode).
	Tokens []int32
	// Last marks the chunk whose last row yields the first token.
	Last bool

	// Draft is how to draft for this round (Decode). On a chunk its By alone counts:
	// who may draft for the sequence later, so that a drafter sees the prompt.
	Draft    Draft
	Sampling *Sampling // on a sequence's first entry in an epoch; nil later
}

// Sampling is how tokens are chosen. The zero value is greedy.
type Sampling struct {
	Temperature       float32
	TopK              int32
	TopP              float32 // 0 or 1: off
	MinP              float32
	Seed              uint64
	RepetitionPenalty float32 // 0 or 1: off
	PresencePenalty   float32
	FrequencyPenalty  float32
	LogitBias         map[int32]float32
	Logprobs          int32 // -1: none; otherwise how many alternatives per token
	PromptTokens      int32 // how many of the first tokens are the prompt
}

// Result is rank 0's answer to a round.
type Result struct {
	Epoch    uint32
	Seq      uint64
	Outcomes []Outcome // one per entry, in order
	Timings  Timings
}

// Outcome is what one entry came to.
type Outcome struct {
	Slot uint16
	// Path is the accepted nodes of the tree, node 0 first (Decode).
	Path []uint8
	// Tokens is what the round proposes to emit: the accepted drafts and one
	// token of the target's own. The coordinator may cut it.
	Tokens []int32
	// Drafted is how many tokens were proposed.
	Drafted uint8
	// Logprobs has one element per token where they were asked for.
	Logprobs []TokenLogprobs
	// Argmax and Logits answer Score: the argmax of each row, the last row's logits.
	Argmax []int32
	Logits []float32
	// Error is a fault of this entry alone (NaN logits); the group lives.
	Error string
}

// TokenLogprobs is the log-probability of one emitted token and of the likeliest ones.
type TokenLogprobs struct {
	Token   int32
	Logprob float32
	Top     []TokenLogprob
}

// TokenLogprob is one alternative.
type TokenLogprob struct {
	Token   int32
	Logprob float32
}

// Timings says where the round's time went on rank 0, in nanoseconds.
type Timings struct {
	Draft, Compute, Transfer, Skew, Launch, Total int64
}
