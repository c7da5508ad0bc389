package tokenizer

import (
	"unicode/utf8"
)

// matcher is one alternative of a split pattern: it returns where its match at
// byte i of s ends, or i when it does not match there. No alternative of a
// known pattern matches the empty string.
type matcher func(t *classTable, s string, i int) int

// in matches set+.
func in(set class) matcher {
	return func(t *classTable, s string, i int) int { return t.run(s, i, set) }
}

// upTo matches set{1,limit}.
func upTo(limit int, set class) matcher {
	return func(t *classTable, s string, i int) int {
		for range limit {
			c, size := t.at(s, i)
			if c&set == 0 {
				break
			}
			i += size
		}
		return i
	}
}

// spaced matches ` ?set+`.
func spaced(set class) matcher {
	return func(t *classTable, s string, i int) int {
		j := skipBlank(s, i)
		if end := t.run(s, j, set); end > j {
			return end
		}
		return i
	}
}

// others matches ` ?[^set]+tail*`. set contains the space.
func others(set, tail class) matcher {
	return func(t *classTable, s string, i int) int {
		j := skipBlank(s, i)
		end := t.runNot(s, j, set)
		if end == j {
			return i
		}
		return t.run(s, end, tail)
	}
}

// marks matches ` ?set+tail*`.
func marks(set, tail class) matcher {
	return func(t *classTable, s string, i int) int {
		j := skipBlank(s, i)
		end := t.run(s, j, set)
		if end == j {
			return i
		}
		return t.run(s, end, tail)
	}
}

// word matches `[^not]?set+`: the leading character is taken when it can be.
func word(not, set class) matcher {
	return func(t *classTable, s string, i int) int {
		c, size := t.at(s, i)
		if size == 0 {
			return i
		}
		if c&not == 0 {
			if end := t.run(s, i+size, set); end > i+size {
				return end
			}
		}
		return t.run(s, i, set)
	}
}

// casedWord is the pair of alternatives that cuts at changes from lower to upper case,
// with U and D sharing the uncased letters and the marks:
//
//	[^\r\n\p{L}\p{N}]?U*D+(contraction)?
//	[^\r\n\p{L}\p{N}]?U+D*(contraction)?
//
// except is taken out of U and D (Kimi's `&&[^\p{Han}]`).
type casedWord struct {
	except       class
	contractions bool
}

func (w casedWord) lowerEnding(t *classTable, s string, i int) int {
	return w.match(t, s, i, w.upThenDown)
}

func (w casedWord) upperStarting(t *classTable, s string, i int) int {
	return w.match(t, s, i, w.upMaybeDown)
}

func (w casedWord) match(t *classTable, s string, i int, body matcher) int {
	c, size := t.at(s, i)
	if size == 0 {
		return i
	}
	start, end := i, i
	if c&(newline|letter|number) == 0 {
		start = i + size
		end = body(t, s, start)
	}
	if end == start { // no leading character, or nothing after it: match without
		start = i
		end = body(t, s, start)
	}
	if end == start {
		return i
	}
	if w.contractions {
		end = contraction(t, s, end)
	}
	return end
}

// upThenDown matches U*D+. U* first takes all it can; when no D follows, it gives
// back up to the last character that is in D too.
func (w casedWord) upThenDown(t *classTable, s string, i int) int {
	lastShared := i
	for j := i; ; {
		c, size := t.at(s, j)
		if c&w.except != 0 || c&(upper|uncased|mark) == 0 {
			if end := w.down(t, s, j); end > j {
				return end
			}
			return lastShared
		}
		j += size
		if c&(uncased|mark) != 0 {
			lastShared = j
		}
	}
}

// upMaybeDown matches U+D*.
func (w casedWord) upMaybeDown(t *classTable, s string, i int) int {
	j := i
	for {
		c, size := t.at(s, j)
		if c&w.except != 0 || c&(upper|uncased|mark) == 0 {
			break
		}
		j += size
	}
	if j == i {
		return i
	}
	return w.down(t, s, j)
}

// down returns the end of D* from i.
func (w casedWord) down(t *classTable, s string, i int) int {
	for {
		c, size := t.at(s, i)
		if c&w.except != 0 || c&(lower|uncased|mark) == 0 {
			return i
		}
		i += size
	}
}

// asciiPunctWord matches one ASCII punctuation character and [A-Za-z]+.
func asciiPunctWord(t *classTable, s string, i int) int {
	c, size := t.at(s, i)
	if size != 1 || c&(punct|symbolic) == 0 {
		return i
	}
	j := i + 1
	for j < len(s) && s[j] < utf8.RuneSelf && t.ascii[s[j]]&letter != 0 {
		j++
	}
	if j == i+1 {
		return i
	}
	return j
}

// spaceLines matches `\s*[\r\n]+`: white space up to the last line end in it.
func spaceLines(t *classTable, s string, i int) int {
	end := i
	for j := i; ; {
		c, size := t.at(s, j)
		if c&space == 0 {
			return end
		}
		j += size
		if c&newline != 0 {
			end = j
		}
	}
}

// spaceBeforeLast matches `\s+(?!\S)`: a run of white space, without its last
// character when something else follows.
func spaceBeforeLast(t *classTable, s string, i int) int {
	last := i
	for j := i; ; {
		c, size := t.at(s, j)
		if c&space == 0 {
			if j == len(s) {
				return j
			}
			return last
		}
		last = j
		j += size
	}
}

// contraction matches `(?i:'s|'t|'re|'ve|'m|'ll|'d)`. U+017F folds to s.
func contraction(_ *classTable, s string, i int) int {
	rest := s[i:]
	if len(rest) < 2 || rest[0] != '\'' {
		return i
	}
	switch rest[1] | 0x20 {
	case 's', 't', 'm', 'd':
		return i + 2
	case 'r', 'v':
		if len(rest) > 2 && rest[2]|0x20 == 'e' {
			return i + 3
		}
	case 'l':
		if len(rest) > 2 && rest[2]|0x20 == 'l' {
			return i + 3
		}
	}
	const longS = "ſ"
	if len(rest) > 2 && rest[1:3] == longS {
		return i + 3
	}
	return i
}

// lowerContraction matches `'s|'t|'re|'ve|'m|'ll|'d`.
func lowerContraction(t *classTable, s string, i int) int {
	end := contraction(t, s, i)
	for _, b := range []byte(s[i:end]) {
		if b >= 'A' && b <= 'Z' || b >= utf8.RuneSelf {
			return i
		}
	}
	return end
}

func skipBlank(s string, i int) int {
	if i < len(s) && s[i] == ' ' {
		return i + 1
	}
	return i
}
