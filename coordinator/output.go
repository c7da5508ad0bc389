package coordinator

import (
	"math"
	"slices"

	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/model/tokenizer"
)

// output turns kept tokens into what the client gets: text that is certain, and
// the tokens that belong to it. Text and tokens have one boundary: a token whose
// text would begin at or after a stop string is not delivered.
type output struct {
	tokenizer *tokenizer.Tokenizer // may be nil
	decode    *tokenizer.Stream    // nil without a tokenizer
	stopper   *tokenizer.Stopper   // nil without stop strings

	// skip is how many tokens the client has from an earlier stream; their text goes
	// up to skipText, which is known once the token after them has come.
	skip, skipText int

	pending []Token // not delivered: their text may be part of a stop string
	pushed  int     // tokens pushed
	decoded int     // bytes of text decoded
	certain int     // bytes of text delivered
	offset  int     // tokens delivered
}

func newOutput(t *tokenizer.Tokenizer, prompt []int32, stop []string, skip int) *output {
	o := &output{tokenizer: t, skip: skip}
	if skip > 0 {
		o.skipText = math.MaxInt
	}
	if t != nil {
		o.decode = t.NewStream(true)
		o.decode.Context(tail(prompt, decodeContext)...)
	}
	if len(stop) > 0 {
		o.stopper = tokenizer.NewStopper(stop...)
	}
	return o
}

// decodeContext is how many prompt tokens are decoded before the output, so that a
// leading space or a character that the prompt began comes out right.
const decodeContext = 8

func tail(tokens []int32, n int) []int32 { return tokens[max(0, len(tokens)-n):] }

// push takes the next token. With text false the token ends the output and has no
// text of its own. stop is the stop string that is complete now, if any.
func (o *output) push(id int32, logprobs *round.TokenLogprobs, text bool) (event Event, stop string) {
	if o.pushed == o.skip {
		o.skipText = o.decoded
	}
	o.pushed++
	o.pending = append(o.pending, Token{ID: id, Logprobs: logprobs, Start: o.decoded})
	var piece string
	if o.decode != nil && text {
		piece = o.decode.Push(id)
	}
	o.decoded += len(piece)
	if o.stopper == nil {
		return o.deliver(piece, len(o.pending)), ""
	}
	piece, stopped := o.stopper.Push(piece)
	return o.settle(piece, stopped)
}

// settle delivers the tokens that begin before the text that is certain now.
func (o *output) settle(piece string, stopped bool) (Event, string) {
	certain := o.certain + len(piece)
	n := 0
	for n < len(o.pending) && o.pending[n].Start < certain {
		n++
	}
	event := o.deliver(piece, n)
	if !stopped {
		return event, ""
	}
	o.pending = nil
	stop, _, _ := o.stopper.Stopped()
	return event, stop
}

// flush ends the output: what was held back is delivered, unless a stop string is
// complete only now.
func (o *output) flush() (event Event, stop string) {
	var piece string
	if o.decode != nil {
		piece = o.decode.Flush()
	}
	o.decoded += len(piece)
	if o.stopper != nil {
		rest, stopped := o.stopper.Flush(piece)
		if stopped {
			return o.settle(rest, true)
		}
		piece = rest
	}
	return o.deliver(piece, len(o.pending)), ""
}

// deliver hands out the first n pending tokens and the text, less what the client has.
func (o *output) deliver(text string, n int) Event {
	tokens := o.pending[:n]
	o.pending = o.pending[n:]
	first, start := o.offset, o.certain
	o.offset += n
	o.certain += len(text)

	if first < o.skip {
		cut := min(o.skip-first, n)
		first, tokens = first+cut, tokens[cut:]
	}
	if start < o.skipText {
		text = text[min(o.skipText-start, len(text)):]
	}
	return Event{Offset: first, Tokens: slices.Clone(tokens), Text: text}
}

// tokenText is the text of one token by itself, special ones included.
func (o *output) tokenText(id int32) string {
	if o.tokenizer == nil {
		return ""
	}
	return o.tokenizer.Decode([]int32{id}, false)
}
