package audit

import (
	"fmt"
	"slices"
)

// Output is what a request yields.
type Output struct {
	Tokens []int32
	Text   string
}

// Stream is one request as its client saw it.
type Stream struct {
	Name   string
	output Output

	misplaced string // the first token at another place than the next
	ends      int
	late      int // tokens after the end
	// failed is the error that ended it; typed says that it is one that clients
	// can tell apart.
	failed string
	typed  bool
}

// Deliver notes tokens, the first of which claims to be number offset.
func (s *Stream) Deliver(offset int, tokens []int32, text string) {
	if s.ends > 0 {
		s.late += len(tokens)
	}
	if len(tokens) > 0 && offset != len(s.output.Tokens) && s.misplaced == "" {
		s.misplaced = fmt.Sprintf("token %d came where token %d was due", offset, len(s.output.Tokens))
	}
	s.output.Tokens = append(s.output.Tokens, tokens...)
	s.output.Text += text
}

// End notes the end of the stream; failed is empty when the request is complete.
func (s *Stream) End(failed string, typed bool) {
	s.ends++
	s.failed, s.typed = failed, typed
}

// Output is what has been delivered.
func (s *Stream) Output() Output { return s.output }

// Complete reports whether the stream ended well.
func (s *Stream) Complete() bool { return s.ends == 1 && s.failed == "" }

// Stream judges a stream that is over. want is the output without faults.
func (a *Audit) Stream(s *Stream, want Output) {
	a.check(EndsOnce, s.ends == 1, "%s ended %d times", s.Name, s.ends)
	a.check(EndsOnce, s.failed == "" || s.typed, "%s ended with an error of no known kind: %s", s.Name, s.failed)
	a.check(NoLoss, s.misplaced == "", "%s: %s", s.Name, s.misplaced)
	a.check(NoLoss, s.late == 0, "%s: %d tokens came after the end", s.Name, s.late)
	got := s.output
	if !s.Complete() {
		// What came before an error must still be the beginning of the right answer.
		n := len(got.Tokens)
		a.check(Identical, n <= len(want.Tokens) && slices.Equal(got.Tokens, want.Tokens[:min(n, len(want.Tokens))]),
			"%s: the %d tokens before its error are not those without faults", s.Name, n)
		return
	}
	at := 0
	for at < len(got.Tokens) && at < len(want.Tokens) && got.Tokens[at] == want.Tokens[at] {
		at++
	}
	a.check(Identical, slices.Equal(got.Tokens, want.Tokens) && got.Text == want.Text,
		"%s: differs from the run without faults at token %d (%d tokens, want %d)", s.Name, at, len(got.Tokens), len(want.Tokens))
}
