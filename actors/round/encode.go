package round

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
)

// Marks in an Entry's flags byte.
const (
	flagLast     = 1 << 0
	flagSampling = 1 << 1
	knownFlags   = flagLast | flagSampling
)

// AppendRound appends the frame of r to dst. It allocates only to grow dst.
func AppendRound(dst []byte, r *Round) ([]byte, error) {
	start := len(dst)
	w := writer{buf: append(dst, make([]byte, headerBytes)...), frame: "round"}
	w.count("entries", len(r.Entries))
	for i := range r.Entries {
		w.entry(&r.Entries[i])
	}
	if w.err != nil {
		return dst, w.err
	}
	seal(w.buf, start, roundMagic, r.Epoch, r.Seq)
	return w.buf, nil
}

// AppendResult appends the frame of r to dst. It allocates only to grow dst.
func AppendResult(dst []byte, r *Result) ([]byte, error) {
	start := len(dst)
	w := writer{buf: append(dst, make([]byte, headerBytes)...), frame: "result"}
	t := &r.Timings
	for _, ns := range [...]int64{t.Draft, t.Compute, t.Transfer, t.Skew, t.Launch, t.Total} {
		w.u64(uint64(ns))
	}
	w.count("outcomes", len(r.Outcomes))
	for i := range r.Outcomes {
		w.outcome(&r.Outcomes[i])
	}
	if w.err != nil {
		return dst, w.err
	}
	seal(w.buf, start, resultMagic, r.Epoch, r.Seq)
	return w.buf, nil
}

// writer appends fields. The first value that does not fit is its error.
type writer struct {
	buf   []byte
	frame string
	err   error
}

func (w *writer) u8(v uint8)    { w.buf = append(w.buf, v) }
func (w *writer) u16(v uint16)  { w.buf = binary.LittleEndian.AppendUint16(w.buf, v) }
func (w *writer) u32(v uint32)  { w.buf = binary.LittleEndian.AppendUint32(w.buf, v) }
func (w *writer) u64(v uint64)  { w.buf = binary.LittleEndian.AppendUint64(w.buf, v) }
func (w *writer) f32(v float32) { w.u32(math.Float32bits(v)) }

func (w *writer) count(field string, n int) {
	if n > math.MaxInt32 && w.err == nil {
		w.err = &FrameError{Frame: w.frame, Field: field, Offset: -1, Reason: fmt.Sprintf("has %d elements, too many for a frame", n)}
	}
	w.u32(uint32(n))
}

func (w *writer) bytes(field string, v []uint8) {
	w.count(field, len(v))
	w.buf = append(w.buf, v...)
}

func (w *writer) ints(field string, v []int32) {
	w.count(field, len(v))
	for _, x := range v {
		w.u32(uint32(x))
	}
}

func (w *writer) entry(e *Entry) {
	w.u8(uint8(e.Kind))
	var flags uint8
	if e.Last {
		flags |= flagLast
	}
	if e.Sampling != nil {
		flags |= flagSampling
	}
	w.u8(flags)
	w.u16(e.Slot)
	w.u64(e.Request)
	w.u32(e.Committed)
	w.u8(uint8(e.Draft.By))
	w.u8(e.Draft.TopK)
	w.u8(e.Draft.Steps)
	w.u8(e.Draft.Nodes)
	w.bytes("accepted", e.Accepted)
	w.ints("tokens", e.Tokens)
	if e.Sampling != nil {
		w.sampling(e.Sampling)
	}
}

func (w *writer) sampling(s *Sampling) {
	w.f32(s.Temperature)
	w.u32(uint32(s.TopK))
	w.f32(s.TopP)
	w.f32(s.MinP)
	w.u64(s.Seed)
	w.f32(s.RepetitionPenalty)
	w.f32(s.PresencePenalty)
	w.f32(s.FrequencyPenalty)
	w.u32(uint32(s.Logprobs))
	w.u32(uint32(s.PromptTokens))
	// In the order of the tokens: equal rounds have equal frames.
	w.count("logit bias", len(s.LogitBias))
	for _, token := range slices.Sorted(maps.Keys(s.LogitBias)) {
		w.u32(uint32(token))
		w.f32(s.LogitBias[token])
	}
}

func (w *writer) outcome(o *Outcome) {
	w.u16(o.Slot)
	w.u8(o.Drafted)
	w.bytes("path", o.Path)
	w.ints("tokens", o.Tokens)
	w.ints("argmax", o.Argmax)
	w.count("logits", len(o.Logits))
	for _, x := range o.Logits {
		w.f32(x)
	}
	w.bytes("error", []byte(o.Error))
	w.count("logprobs", len(o.Logprobs))
	for i := range o.Logprobs {
		l := &o.Logprobs[i]
		w.u32(uint32(l.Token))
		w.f32(l.Logprob)
		w.count("top", len(l.Top))
		for _, top := range l.Top {
			w.u32(uint32(top.Token))
			w.f32(top.Logprob)
		}
	}
}
