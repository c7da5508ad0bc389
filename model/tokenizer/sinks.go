package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// sink receives tokens, each in parts and then its end, and at last the end of all.
type sink interface {
	part(text string)
	end()
	flush()
}

// collector ends every chain.
type collector struct{ buf []byte }

func (c *collector) part(text string) { c.buf = append(c.buf, text...) }
func (c *collector) end()             {}
func (c *collector) flush()           {}

func (c *collector) take() string {
	text := string(c.buf)
	c.buf = c.buf[:0]
	return text
}

// utf8Sink joins the bytes of all tokens and decodes them: an invalid part becomes U+FFFD,
// an unfinished sequence waits.
type utf8Sink struct {
	next    sink
	pending []byte
	out     []byte
}

func newUTF8Sink(next sink) sink { return &utf8Sink{next: next} }

func (u *utf8Sink) part(text string) {
	if len(u.pending) == 0 && utf8.ValidString(text) {
		u.next.part(text)
		return
	}
	u.pending = append(u.pending, text...)
	whole := len(u.pending) - incompleteSuffix(u.pending)
	if whole > 0 {
		u.out = appendLossy(u.out[:0], u.pending[:whole])
		u.pending = append(u.pending[:0], u.pending[whole:]...)
		u.next.part(string(u.out))
	}
}

func (u *utf8Sink) end() {}

func (u *utf8Sink) flush() {
	if len(u.pending) > 0 {
		u.next.part(string(appendLossy(nil, u.pending)))
	}
	u.next.end()
	u.next.flush()
}

// byteFallbackSink turns runs of <0xXX> tokens into text: all of a run that is valid
// UTF-8, else U+FFFD for each byte. The run has to end before either is known.
type byteFallbackSink struct {
	next sink
	run  []byte
}

func newByteFallbackSink(next sink) sink { return &byteFallbackSink{next: next} }

func (b *byteFallbackSink) part(text string) {
	if v, ok := parseByteToken(text); ok {
		b.run = append(b.run, v)
		return
	}
	b.endRun()
	b.next.part(text)
	b.next.end()
}

func (b *byteFallbackSink) end() {}

func (b *byteFallbackSink) flush() {
	b.endRun()
	b.next.flush()
}

func (b *byteFallbackSink) endRun() {
	if len(b.run) == 0 {
		return
	}
	if utf8.Valid(b.run) {
		b.next.part(string(b.run))
		b.next.end()
	} else {
		for range b.run {
			b.next.part(string(utf8.RuneError))
			b.next.end()
		}
	}
	b.run = b.run[:0]
}

// parseByteToken reads the byte of a <0xXX> token.
func parseByteToken(token string) (byte, bool) {
	if len(token) != 6 || token[:3] != "<0x" || token[5] != '>' {
		return 0, false
	}
	hi, lo := strings.IndexByte(hexDigits, token[3]), strings.IndexByte(hexDigits, token[4])
	if hi < 0 || lo < 0 {
		return 0, false
	}
	return byte(hi%16<<4 | lo%16), true
}

// hexDigits has the digits twice, with the letters that differ in case at a distance of 16.
const hexDigits = "0123456789ABCDEF0123456789abcdef"

// fuseSink makes one token of all.
type fuseSink struct{ next sink }

func newFuseSink(next sink) sink { return &fuseSink{next} }

func (f *fuseSink) part(text string) { f.next.part(text) }
func (f *fuseSink) end()             {}
func (f *fuseSink) flush()           { f.next.end(); f.next.flush() }

// mapSink rewrites the parts of tokens.
type mapSink struct {
	next  sink
	apply func(string) string
}

func (m *mapSink) part(text string) { m.next.part(m.apply(text)) }
func (m *mapSink) end()             { m.next.end() }
func (m *mapSink) flush()           { m.next.flush() }

// stripSink takes up to start characters from the front of each token, and stop from
// its end, as far as they are content.
type stripSink struct {
	next        sink
	content     string
	start, stop int
	left        int // characters still to take from the front
	held        int // characters that may have to go from the end
}

func (s *stripSink) part(text string) {
	for s.left > 0 && text != "" {
		rest, ok := strings.CutPrefix(text, s.content)
		if !ok {
			s.left = 0
			break
		}
		text = rest
		s.left--
	}
	body := text
	trailing := 0
	for trailing < s.stop && strings.HasSuffix(body, s.content) {
		body = body[:len(body)-len(s.content)]
		trailing++
	}
	if body == "" { // all of it may still be the end
		keep := min(s.held+trailing, s.stop)
		s.next.part(strings.Repeat(s.content, s.held+trailing-keep))
		s.held = keep
		return
	}
	s.next.part(strings.Repeat(s.content, s.held) + body)
	s.held = trailing
}

func (s *stripSink) end() {
	s.left, s.held = s.start, 0
	s.next.end()
}

func (s *stripSink) flush() { s.next.flush() }

// metaspaceSink turns the replacement back into spaces, and drops it in the first token.
type metaspaceSink struct {
	next        sink
	replacement string
	dropping    bool
}

func (m *metaspaceSink) part(text string) {
	space := " "
	if m.dropping {
		space = ""
	}
	m.next.part(strings.ReplaceAll(text, m.replacement, space))
}

func (m *metaspaceSink) end() {
	m.dropping = false
	m.next.end()
}

func (m *metaspaceSink) flush() { m.next.flush() }

// spaceSink puts spaces between tokens.
type spaceSink struct {
	next    sink
	between bool
}

func newSpaceSink(next sink) sink { return &spaceSink{next: next} }

func (s *spaceSink) part(text string) {
	if s.between {
		s.next.part(" ")
	}
	s.next.part(text)
}

func (s *spaceSink) end() {
	s.between = true
	s.next.end()
}

func (s *spaceSink) flush() { s.next.flush() }
