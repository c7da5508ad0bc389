package tokenizer

import "slices"

// Tokenizer encodes and decodes text. Load makes one.
type Tokenizer struct {
	vocabulary []vocabularyEntry // by id
	ids        map[string]int32  // by token text

	chunk      func(text string, visit func(string)) // cut before everything else; nil: no cut
	added      *addedSet                             // looked for in the text as it comes
	normalized *addedSet                             // looked for after normalisation
	normalize  normalize                             // nil: none
	splitters  []splitter
	model      *bpe
	post       postProcessor
	decoder    *decoder
	// allOrdinary: without special tokens, no added token is recognised (tiktoken).
	allOrdinary bool

	bos        int32 // noToken when unknown
	eos        []int32
	templates  map[string]string // chat templates by name
	tokenTexts map[string]string // bos_token, eos_token, ... as the templates know them
}

type vocabularyEntry struct {
	text    string
	written string // what the token decodes from, where that is not its text
	present bool
	special bool
}

// Encode returns the tokens of text. Added tokens that stand in the text, special ones included, are
// recognised. With special, the tokens the model expects around a text (mostly a begin token) are added.
func (t *Tokenizer) Encode(text string, special bool) []int32 {
	ids := make([]int32, 0, len(text)/3+len(t.post.before)+len(t.post.after)+1)
	if special {
		ids = append(ids, t.post.before...)
	}
	ids = t.encode(ids, text, false)
	if special {
		ids = append(ids, t.post.after...)
	}
	return ids
}

// EncodeOrdinary returns the tokens of text as text: a special token written in it is split
// like any other word, so text from outside cannot forge one. Nothing is added around it.
func (t *Tokenizer) EncodeOrdinary(text string) []int32 {
	return t.encode(make([]int32, 0, len(text)/3+1), text, true)
}

// Decode returns the text of ids, without the special tokens if skipSpecial.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	s := t.NewStream(skipSpecial)
	for _, id := range ids {
		s.push(id)
	}
	return s.Flush()
}

// VocabSize is one more than the highest token id. A model may have more rows.
func (t *Tokenizer) VocabSize() int { return len(t.vocabulary) }

// TokenID returns the id of a token given as its file spells it (see IDToken).
func (t *Tokenizer) TokenID(token string) (int32, bool) {
	id, ok := t.ids[token]
	return id, ok
}

// IDToken returns a token as its file spells it: tokenizer.json writes bytes in GPT-2's alphabet
// or spaces as ▁; tokens of tiktoken.model are bytes and may be invalid UTF-8.
func (t *Tokenizer) IDToken(id int32) (string, bool) {
	if id < 0 || int(id) >= len(t.vocabulary) || !t.vocabulary[id].present {
		return "", false
	}
	return t.vocabulary[id].text, true
}

// BOS returns the begin token, false if the files name none.
func (t *Tokenizer) BOS() (int32, bool) { return t.bos, t.bos != noToken }

// EOS returns the tokens that end a generation, those of generation_config.json first.
// It is empty if the files name none.
func (t *Tokenizer) EOS() []int32 { return slices.Clone(t.eos) }

// IsSpecial reports whether id carries structure, not text.
func (t *Tokenizer) IsSpecial(id int32) bool {
	return id >= 0 && int(id) < len(t.vocabulary) && t.vocabulary[id].special
}

// SpecialTokens returns the ids of all special tokens in ascending order.
func (t *Tokenizer) SpecialTokens() []int32 {
	var ids []int32
	for id := range t.vocabulary {
		if t.vocabulary[id].special {
			ids = append(ids, int32(id))
		}
	}
	return ids
}

// encode appends the tokens of text; with ordinary, special tokens in it are text.
func (t *Tokenizer) encode(dst []int32, text string, ordinary bool) []int32 {
	e := &encoding{Tokenizer: t, ids: dst, ordinary: ordinary}
	e.emit = func(p piece) { e.ids = e.model.encode(e.ids, p.text) }
	for _, s := range slices.Backward(t.splitters) {
		next := e.emit
		e.emit = func(p piece) { s.split(p, next) }
	}
	text = validText(text)
	if t.chunk == nil {
		e.text(text)
	} else {
		t.chunk(text, e.text)
	}
	return e.ids
}

// encoding is one text on its way through a tokenizer.
type encoding struct {
	*Tokenizer
	ids      []int32
	ordinary bool
	emit     func(piece) // the splits, and the model at their end
}

// text encodes text in which added tokens may stand.
func (e *encoding) text(text string) {
	e.cut(e.added, text, func(start, end int) {
		stretch := text[start:end]
		if e.normalize != nil {
			stretch = e.normalize(stretch)
		}
		e.cut(e.normalized, stretch, func(from, to int) {
			e.emit(piece{stretch[from:to], start == 0 && from == 0})
		})
	})
}

// cut takes the added tokens of a set out of s and passes on what is between them.
func (e *encoding) cut(set *addedSet, s string, between func(start, end int)) {
	if e.ordinary && e.allOrdinary {
		between(0, len(s))
		return
	}
	set.cut(s, e.ordinary, func(start, end int, tok *addedToken) {
		if tok != nil {
			e.ids = append(e.ids, tok.ID)
			return
		}
		between(start, end)
	})
}
