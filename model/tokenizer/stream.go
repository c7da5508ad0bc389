package tokenizer

// Stream decodes tokens one at a time. It never emits part of a UTF-8 sequence, and all it
// emits is together what Decode returns for the same tokens.
type Stream struct {
	tokenizer   *Tokenizer
	skipSpecial bool
	first       sink
	out         collector
}

// NewStream starts a stream. With skipSpecial, special tokens decode to nothing.
func (t *Tokenizer) NewStream(skipSpecial bool) *Stream {
	s := &Stream{tokenizer: t, skipSpecial: skipSpecial}
	s.first = t.decoder.chain(&s.out)
	return s
}

// Push takes the next token and returns the text that is certain now.
func (s *Stream) Push(id int32) string {
	s.push(id)
	return s.out.take()
}

// Context takes tokens that stand before the text to be streamed, such as a prompt, and
// drops their text. What it leaves unfinished comes out with the tokens that finish it.
func (s *Stream) Context(ids ...int32) {
	for _, id := range ids {
		s.push(id)
	}
	s.out.buf = s.out.buf[:0]
}

// Flush ends the stream and returns what was held back: an unfinished UTF-8
// sequence comes out as U+FFFD. No Push may follow.
func (s *Stream) Flush() string {
	s.first.flush()
	return s.out.take()
}

func (s *Stream) push(id int32) {
	t := s.tokenizer
	if id < 0 || int(id) >= len(t.vocabulary) {
		return
	}
	entry := &t.vocabulary[id]
	if !entry.present || s.skipSpecial && entry.special {
		return
	}
	s.first.part(t.decoder.feed[id])
	s.first.end()
}
