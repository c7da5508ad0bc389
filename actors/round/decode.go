package round

import (
	"encoding/binary"
	"fmt"
	"math"
)

// DecodeRound reads a frame made by AppendRound. What it returns shares no
// memory with the frame. It allocates no more than a small multiple of the
// frame's length, whatever the bytes say.
func DecodeRound(frame []byte) (*Round, error) {
	epoch, seq, body, err := open(frame, roundMagic)
	if err != nil {
		return nil, err
	}
	r := reader{body: body, frame: "round"}
	out := &Round{Epoch: epoch, Seq: seq}
	if n := r.count("entries", minEntryBytes); n > 0 {
		out.Entries = make([]Entry, n)
	}
	for i := range out.Entries {
		r.entry(&out.Entries[i])
	}
	return out, r.finish()
}

// DecodeResult reads a frame made by AppendResult, with DecodeRound's guarantees.
func DecodeResult(frame []byte) (*Result, error) {
	epoch, seq, body, err := open(frame, resultMagic)
	if err != nil {
		return nil, err
	}
	r := reader{body: body, frame: "result"}
	out := &Result{Epoch: epoch, Seq: seq}
	t := &out.Timings
	for _, ns := range [...]*int64{&t.Draft, &t.Compute, &t.Transfer, &t.Skew, &t.Launch, &t.Total} {
		*ns = int64(r.u64("timings"))
	}
	if n := r.count("outcomes", minOutcomeBytes); n > 0 {
		out.Outcomes = make([]Outcome, n)
	}
	for i := range out.Outcomes {
		r.outcome(&out.Outcomes[i])
	}
	return out, r.finish()
}

// The least that one element takes in a body: what bounds a count before memory
// is allocated for it.
const (
	minEntryBytes    = 28
	minOutcomeBytes  = 27
	minLogprobsBytes = 12
	pairBytes        = 8
)

// reader takes fields off a body. After its first error it returns zeros.
type reader struct {
	body  []byte
	off   int
	frame string
	err   error
}

func (r *reader) fail(field, reason string, args ...any) {
	if r.err == nil {
		r.err = &FrameError{Frame: r.frame, Field: field, Offset: r.off, Reason: fmt.Sprintf(reason, args...)}
	}
}

// take is the next n bytes, or nil.
func (r *reader) take(field string, n int) []byte {
	if r.err != nil {
		return nil
	}
	if left := len(r.body) - r.off; n > left {
		r.fail(field, "needs %d bytes, %d are left", n, left)
		return nil
	}
	r.off += n
	return r.body[r.off-n : r.off]
}

func (r *reader) u8(field string) uint8 {
	if b := r.take(field, 1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) u16(field string) uint16 {
	if b := r.take(field, 2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (r *reader) u32(field string) uint32 {
	if b := r.take(field, 4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) u64(field string) uint64 {
	if b := r.take(field, 8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *reader) i32(field string) int32   { return int32(r.u32(field)) }
func (r *reader) f32(field string) float32 { return math.Float32frombits(r.u32(field)) }

// count reads a number of elements that take at least elementBytes each.
func (r *reader) count(field string, elementBytes int) int {
	n := r.u32(field)
	if left := len(r.body) - r.off; uint64(n)*uint64(elementBytes) > uint64(left) {
		r.fail(field, "claims %d elements, %d bytes are left", n, left)
	}
	if r.err != nil {
		return 0
	}
	return int(n)
}

func (r *reader) bytes(field string) []uint8 {
	n := r.count(field, 1)
	if n == 0 {
		return nil
	}
	return append([]uint8(nil), r.take(field, n)...)
}

func (r *reader) ints(field string) []int32 {
	n := r.count(field, 4)
	if n == 0 {
		return nil
	}
	out := make([]int32, n)
	for i := range out {
		out[i] = r.i32(field)
	}
	return out
}

func (r *reader) finish() error {
	if left := len(r.body) - r.off; left != 0 {
		r.fail("body", "has %d bytes after the last field", left)
	}
	return r.err
}

func (r *reader) entry(e *Entry) {
	e.Kind = Kind(r.u8("kind"))
	if e.Kind < Prefill || e.Kind > Score {
		r.fail("kind", "is %d, want %d to %d", e.Kind, Prefill, Score)
	}
	flags := r.u8("flags")
	if flags&^knownFlags != 0 {
		r.fail("flags", "are %#x, want none but %#x", flags, knownFlags)
	}
	e.Last = flags&flagLast != 0
	e.Slot = r.u16("slot")
	e.Request = r.u64("request")
	e.Committed = r.u32("committed")
	e.Draft.By = Drafter(r.u8("drafter"))
	if e.Draft.By > NGram {
		r.fail("drafter", "is %d, want at most %d", e.Draft.By, NGram)
	}
	e.Draft.TopK = r.u8("top k")
	e.Draft.Steps = r.u8("steps")
	e.Draft.Nodes = r.u8("nodes")
	e.Accepted = r.bytes("accepted")
	e.Tokens = r.ints("tokens")
	if flags&flagSampling != 0 {
		e.Sampling = r.sampling()
	}
}

func (r *reader) sampling() *Sampling {
	s := &Sampling{
		Temperature:       r.f32("temperature"),
		TopK:              r.i32("sampling top k"),
		TopP:              r.f32("top p"),
		MinP:              r.f32("min p"),
		Seed:              r.u64("seed"),
		RepetitionPenalty: r.f32("repetition penalty"),
		PresencePenalty:   r.f32("presence penalty"),
		FrequencyPenalty:  r.f32("frequency penalty"),
		Logprobs:          r.i32("logprobs"),
		PromptTokens:      r.i32("prompt tokens"),
	}
	n := r.count("logit bias", pairBytes)
	if n == 0 {
		return s
	}
	s.LogitBias = make(map[int32]float32, n)
	last := int64(math.MinInt64)
	for range n {
		token := r.i32("logit bias")
		if int64(token) <= last {
			r.fail("logit bias", "token %d follows %d, want ascending tokens", token, last)
		}
		last = int64(token)
		s.LogitBias[token] = r.f32("logit bias")
	}
	return s
}

func (r *reader) outcome(o *Outcome) {
	o.Slot = r.u16("slot")
	o.Drafted = r.u8("drafted")
	o.Path = r.bytes("path")
	o.Tokens = r.ints("tokens")
	o.Argmax = r.ints("argmax")
	if n := r.count("logits", 4); n > 0 {
		o.Logits = make([]float32, n)
	}
	for i := range o.Logits {
		o.Logits[i] = r.f32("logits")
	}
	o.Error = string(r.bytes("error"))
	if n := r.count("logprobs", minLogprobsBytes); n > 0 {
		o.Logprobs = make([]TokenLogprobs, n)
	}
	for i := range o.Logprobs {
		l := &o.Logprobs[i]
		l.Token = r.i32("token")
		l.Logprob = r.f32("logprob")
		if n := r.count("top", pairBytes); n > 0 {
			l.Top = make([]TokenLogprob, n)
		}
		for j := range l.Top {
			l.Top[j] = TokenLogprob{Token: r.i32("top"), Logprob: r.f32("top")}
		}
	}
}
