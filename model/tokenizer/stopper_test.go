package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// naiveStop looks at the whole text after every character.
func naiveStop(text string, stops []string) (out, stop string) {
	for end := range len(text) + 1 {
		for _, s := range stops {
			if s != "" && strings.HasSuffix(text[:end], s) && len(s) > len(stop) {
				stop = s
			}
		}
		if stop != "" {
			return text[:end-len(stop)], stop
		}
	}
	return text, ""
}

func TestStopStringsCutWhereverTokensEnd(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	word := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "abc"[rng.IntN(3)]
		}
		return string(b)
	}
	for range 5000 {
		stops := []string{word(1 + rng.IntN(5)), word(2 + rng.IntN(4)), ""}
		text := word(rng.IntN(20))
		want, wantStop := naiveStop(text, stops)

		s := NewStopper(stops...)
		var out strings.Builder
		token, stopToken := -1, -1
		for rest := text; rest != "" && stopToken < 0; {
			n := rng.IntN(min(4, len(rest)) + 1)
			token++
			part, stopped := s.Push(rest[:n])
			rest = rest[n:]
			out.WriteString(part)
			if stopped {
				stopToken = token
			}
			// What is out is out: it must never have to be taken back.
			if !strings.HasPrefix(want, out.String()) {
				t.Fatalf("%q, stops %q: emitted %q of %q", text, stops, out.String(), want)
			}
		}
		part, _ := s.Flush("")
		out.WriteString(part)
		stop, at, ok := s.Stopped()
		if out.String() != want || stop != wantStop || ok != (wantStop != "") || ok && at != stopToken {
			t.Fatalf("%q, stops %q: got %q, %q at %d, want %q, %q at %d", text, stops, out.String(), stop, at, want, wantStop, stopToken)
		}
	}
}

func TestStopperHoldsBackOnlyWhatMayStillBeAStop(t *testing.T) {
	s := NewStopper("</s>", "\n\nUser")
	var got []string
	for _, text := range []string{"a<", "/b", "\n", "\nU", "x", "</", "s>", "more"} {
		part, _ := s.Push(text)
		got = append(got, part)
	}
	if want := []string{"a", "</b", "", "", "\n\nUx", "", "", ""}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if stop, token, ok := s.Stopped(); stop != "</s>" || token != 6 || !ok {
		t.Errorf("stopped by %q at %d, %v", stop, token, ok)
	}
}

func TestStopInTheEndOfTheStreamCountsToTheLastToken(t *testing.T) {
	s := NewStopper("b\ufffd")
	s.Push("a")
	s.Push("b")
	s.Push("")
	if out, stopped := s.Flush("\ufffd"); out != "" || !stopped {
		t.Errorf("got %q, %v", out, stopped)
	}
	if _, token, _ := s.Stopped(); token != 2 {
		t.Errorf("token %d", token)
	}
	s = NewStopper("ab")
	s.Push("xa")
	if out, stopped := s.Flush("c"); out != "ac" || stopped {
		t.Errorf("got %q, %v", out, stopped)
	}
}
