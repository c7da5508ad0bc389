package coordinator

import (
	"slices"

	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/speculation"
)

// sequence is a request as the scheduler sees it.
type sequence struct {
	key       uint64 // Entry.Request
	prompt    []int32
	generated []int32 // kept so far
	blocks    int     // KV blocks it may come to need
	score     bool    // wants the argmax of every row, nothing generated
	network   bool    // the drafter network may come to draft for it
	sampling  *round.Sampling

	// The state within one epoch of the group.
	slot       uint16
	filled     int     // positions in the cache, those of accepted included
	introduced bool    // the ranks know its sampling
	accepted   []uint8 // the path of its last verify, not yet committed

	option   speculation.Option // of the round under way
	expected float64            // tokens of it
}

// toFill is how many positions must be in the cache before it decodes. The last
// generated token is the root of the next tree and not among them.
func (q *sequence) toFill() int {
	return len(q.prompt) + max(len(q.generated)-1, 0)
}

func (q *sequence) prefilling() bool { return q.filled < q.toFill() }

// token is the token at a position of prompt and output.
func (q *sequence) token(position int) int32 {
	if position < len(q.prompt) {
		return q.prompt[position]
	}
	return q.generated[position-len(q.prompt)]
}

// scheduler decides what each round runs. It is pure: no clock, no goroutine.
//
// Requests are admitted first come, first served, when a slot is free and the
// blocks they may come to need are, so that none is ever preempted. Every decoding
// sequence is in every round; the prefill rows of a round go to the oldest first.
type scheduler struct {
	config     *Config
	waiting    []*sequence
	running    []*sequence // in order of admission
	slots      []bool      // in use
	leaving    []*sequence // finished, the ranks do not know yet
	freeBlocks int
}

func newScheduler(config *Config) *scheduler {
	return &scheduler{config: config, slots: make([]bool, config.Batch), freeBlocks: config.Blocks}
}

// submit queues a sequence, false if the queue is full.
func (s *scheduler) submit(q *sequence) bool {
	if len(s.waiting) >= s.config.Queue {
		return false
	}
	s.waiting = append(s.waiting, q)
	return true
}

// idle says that there is nothing to run, and nothing to tell the ranks.
func (s *scheduler) idle() bool {
	return len(s.waiting)+len(s.running)+len(s.leaving) == 0
}

// finish takes a sequence out, wherever it is. Its slot and blocks are free once
// the ranks were told, or at once if they do not know it.
func (s *scheduler) finish(q *sequence) {
	if i := slices.Index(s.waiting, q); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		return
	}
	if i := slices.Index(s.running, q); i >= 0 {
		s.running = slices.Delete(s.running, i, i+1)
		if q.introduced {
			s.leaving = append(s.leaving, q)
		} else {
			s.free(q)
		}
	}
}

// reset starts a new epoch: the ranks know nothing, and every running sequence is
// prefilled again, output included.
func (s *scheduler) reset() {
	for _, q := range s.leaving {
		s.free(q)
	}
	s.leaving = nil
	for _, q := range s.running {
		q.filled, q.introduced, q.accepted = 0, false, nil
	}
}

func (s *scheduler) free(q *sequence) {
	s.slots[q.slot] = false
	s.freeBlocks += q.blocks
}

// chooser sets the option and the expected tokens of a sequence for a round, given
// the rest of the batch and at most that many rows.
type chooser func(q *sequence, load speculation.Load, rows int)

// plan composes a round. owners is parallel to the entries; a Release has none.
func (s *scheduler) plan(choose chooser) (entries []round.Entry, owners []*sequence) {
	add := func(e round.Entry, q *sequence) {
		entries = append(entries, e)
		owners = append(owners, q)
	}
	for _, q := range s.leaving {
		add(round.Entry{Kind: round.Release, Slot: q.slot, Request: q.key}, nil)
	}
	// What is released in this round can be given away in the next.
	s.admit()
	for _, q := range s.leaving {
		s.free(q)
	}
	s.leaving = s.leaving[:0]

	s.chooseDrafts(choose)
	rows := s.config.ChunkRows
	for _, q := range s.running {
		if !q.prefilling() {
			add(s.decode(q), q)
		} else if chunk := min(rows, q.toFill()-q.filled); chunk > 0 {
			rows -= chunk
			add(s.chunk(q, chunk), q)
		}
	}
	return entries, owners
}

func (s *scheduler) admit() {
	for len(s.waiting) > 0 {
		q, slot := s.waiting[0], slices.Index(s.slots, false)
		if slot < 0 || q.blocks > s.freeBlocks {
			return
		}
		s.waiting = slices.Delete(s.waiting, 0, 1)
		s.slots[slot], q.slot = true, uint16(slot)
		s.freeBlocks -= q.blocks
		s.running = append(s.running, q)
	}
}

// chooseDrafts asks for each decoding sequence in turn, the others being as they
// were chosen in this round or the last. At least one row is left for each that
// is still to come.
func (s *scheduler) chooseDrafts(choose chooser) {
	var decoding []*sequence
	context := 0
	for _, q := range s.running {
		if !q.prefilling() {
			decoding = append(decoding, q)
			context += q.toFill()
		}
	}
	used := 0
	for i, q := range decoding {
		load := speculation.Load{Context: context}
		for _, other := range decoding {
			if other != q {
				load.Others++
				load.Rows += other.option.Nodes()
				load.Tokens += max(other.expected, 1)
				load.Steps = max(load.Steps, other.option.DraftSteps())
			}
		}
		choose(q, load, s.config.VerifyRows-used-(len(decoding)-1-i))
		used += q.option.Nodes()
	}
}

// decode is the entry of a sequence that verifies a tree under its last token.
func (s *scheduler) decode(q *sequence) round.Entry {
	committed := q.toFill()
	e := round.Entry{
		Kind: round.Decode, Slot: q.slot, Request: q.key,
		Committed: uint32(committed), Accepted: q.accepted, Tokens: []int32{q.token(committed)},
		Draft: wireDraft(q.option),
	}
	q.accepted = nil
	return e
}

// chunk is the entry of a sequence that prefills its next rows.
func (s *scheduler) chunk(q *sequence, rows int) round.Entry {
	e := round.Entry{Kind: round.Prefill, Slot: q.slot, Request: q.key, Committed: uint32(q.filled)}
	if q.score {
		e.Kind = round.Score
	}
	for i := range rows {
		e.Tokens = append(e.Tokens, q.token(q.filled+i))
	}
	if q.network {
		e.Draft.By = round.Eagle3
	}
	if !q.introduced {
		e.Sampling, q.introduced = q.sampling, true
	}
	e.Last = q.filled+rows == len(q.prompt) && len(q.generated) == 0
	return e
}

func wireDraft(o speculation.Option) round.Draft {
	if o.Shape.IsZero() {
		return round.Draft{}
	}
	by := map[speculation.Drafter]round.Drafter{speculation.Eagle3: round.Eagle3, speculation.PromptLookup: round.NGram}[o.By]
	return round.Draft{By: by, TopK: uint8(o.Shape.TopK), Steps: uint8(o.Shape.Steps), Nodes: uint8(o.Shape.Nodes)}
}
