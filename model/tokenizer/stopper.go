package tokenizer

import "strings"

// Stopper cuts streamed text in front of the first stop string. Text that may still become part of one is
// held back. The stop string that is complete first wins, the longest of several that end together, so the
// outcome does not depend on how the text is cut into tokens.
type Stopper struct {
	stops  []string
	held   string
	pushes int
	stop   string
	token  int
}

// NewStopper watches for stops. Empty ones are ignored.
func NewStopper(stops ...string) *Stopper {
	s := &Stopper{token: -1}
	for _, stop := range stops {
		if stop != "" {
			s.stops = append(s.stops, stop)
		}
	}
	return s
}

// Push takes the text of the next token, empty if it has none yet, and returns the text
// that cannot be part of a stop string any more. After a stop it returns nothing.
func (s *Stopper) Push(text string) (out string, stopped bool) {
	s.pushes++
	return s.take(text)
}

// Flush takes what a Stream held back to its end, which counts to the last token, and returns
// everything that is left. The stop string may be complete only now.
func (s *Stopper) Flush(text string) (out string, stopped bool) {
	out, stopped = s.take(text)
	if !stopped {
		out += s.held
		s.held = ""
	}
	return out, stopped
}

// Stopped returns the stop string and the index of the token (counted by Push, from 0)
// that completed it; false while there is none.
func (s *Stopper) Stopped() (stop string, token int, ok bool) {
	return s.stop, s.token, s.stop != ""
}

func (s *Stopper) take(text string) (string, bool) {
	if s.stop != "" {
		return "", true
	}
	text = s.held + text
	end := len(text) + 1
	for _, stop := range s.stops {
		at := strings.Index(text, stop)
		if at < 0 {
			continue
		}
		if e := at + len(stop); e < end || e == end && len(stop) > len(s.stop) {
			end, s.stop = e, stop
		}
	}
	if s.stop != "" {
		s.token = max(s.pushes-1, 0)
		s.held = ""
		return text[:end-len(s.stop)], true
	}
	hold := s.openSuffix(text)
	s.held = text[hold:]
	return text[:hold], false
}

// openSuffix returns where the longest suffix of text begins that starts a stop string.
func (s *Stopper) openSuffix(text string) int {
	first := len(text)
	for _, stop := range s.stops {
		for n := min(len(stop)-1, len(text)); n > len(text)-first; n-- {
			if text[len(text)-n:] == stop[:n] {
				first = len(text) - n
				break
			}
		}
	}
	return first
}
