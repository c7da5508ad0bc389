package tokenizer

import "unicode/utf8"

// piece is a part of the text on its way to the BPE model.
type piece struct {
	text  string
	first bool // it starts where the whole text starts
}

// splitter is one stage of pre-tokenization: it passes the parts of p on in order.
type splitter interface {
	split(p piece, next func(piece))
}

// behavior says what becomes of the parts of a text that match a delimiter.
type behavior uint8

const (
	isolated           behavior = iota // each match is a piece, so is each gap
	removed                            // matches are dropped
	mergedWithPrevious                 // a match ends the piece before it
	mergedWithNext                     // a match starts the piece after it
	contiguous                         // adjacent matches are one piece
)

// patternSplit cuts at the matches of a pattern.
type patternSplit struct {
	classes      *classTable
	alternatives []matcher
	behavior     behavior
	invert       bool // what is between the matches delimits, and the matches are kept
}

func (sp *patternSplit) split(p piece, next func(piece)) {
	if sp.behavior == isolated || sp.behavior == removed && sp.invert {
		sp.splitIsolated(p, sp.behavior == removed, next)
		return
	}
	g := grouper{behavior: sp.behavior, text: p, next: next}
	sp.scan(p.text, func(start, end int, match bool) { g.add(start, end, match != sp.invert) })
	g.flush()
}

// splitIsolated is the common case, without a second pass over the parts.
func (sp *patternSplit) splitIsolated(p piece, dropGaps bool, next func(piece)) {
	s, gap := p.text, 0
	for i := 0; i < len(s); {
		end := sp.match(s, i)
		if end == i {
			_, size := utf8.DecodeRuneInString(s[i:])
			i += size
			continue
		}
		if gap < i && !dropGaps {
			next(piece{s[gap:i], p.first && gap == 0})
		}
		next(piece{s[i:end], p.first && i == 0})
		i, gap = end, end
	}
	if gap < len(s) && !dropGaps {
		next(piece{s[gap:], p.first && gap == 0})
	}
}

// scan visits the matches and the gaps between them, which together are s.
func (sp *patternSplit) scan(s string, visit func(start, end int, match bool)) {
	gap := 0
	for i := 0; i < len(s); {
		end := sp.match(s, i)
		if end == i {
			_, size := utf8.DecodeRuneInString(s[i:])
			i += size
			continue
		}
		if gap < i {
			visit(gap, i, false)
		}
		visit(i, end, true)
		i, gap = end, end
	}
	if gap < len(s) {
		visit(gap, len(s), false)
	}
}

// match tries the alternatives in order, as a backtracking engine does.
func (sp *patternSplit) match(s string, i int) int {
	for _, m := range sp.alternatives {
		if end := m(sp.classes, s, i); end > i {
			return end
		}
	}
	return i
}

// grouper joins the visited parts as a behavior asks.
type grouper struct {
	behavior   behavior
	text       piece
	next       func(piece)
	start, end int
	delimiter  bool // the last part was one
	open       bool // there is a part to pass on
}

func (g *grouper) add(start, end int, delimiter bool) {
	if g.open && !g.joins(delimiter) {
		g.flush()
	}
	if g.behavior == removed && delimiter {
		g.delimiter = true
		return
	}
	if !g.open {
		g.start = start
	}
	g.end, g.open, g.delimiter = end, true, delimiter
}

// joins reports whether the part to come continues the open one.
func (g *grouper) joins(delimiter bool) bool {
	switch g.behavior {
	case mergedWithPrevious:
		return delimiter && !g.delimiter
	case mergedWithNext:
		return !delimiter && g.delimiter
	case contiguous:
		return delimiter == g.delimiter
	}
	return false
}

func (g *grouper) flush() {
	if g.open {
		g.next(piece{g.text.text[g.start:g.end], g.text.first && g.start == 0})
		g.open = false
	}
}

// byteLevelSplit is the ByteLevel pre-tokenizer. The mapping of bytes to printable
// characters is undone in the vocabulary instead, so that pieces stay as they are.
type byteLevelSplit struct {
	prefixSpace bool
	words       *patternSplit // nil without use_regex
}

func (b *byteLevelSplit) split(p piece, next func(piece)) {
	if b.prefixSpace && p.text != "" && p.text[0] != ' ' {
		p.text = " " + p.text
	}
	if b.words == nil {
		next(p)
		return
	}
	b.words.split(p, next)
}

// literal matches one fixed text.
func literal(text string) matcher {
	return func(_ *classTable, s string, i int) int {
		if len(s)-i >= len(text) && s[i:i+len(text)] == text {
			return i + len(text)
		}
		return i
	}
}
