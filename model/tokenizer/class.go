package tokenizer

import (
	"sync/atomic"
	"unicode"
	"unicode/utf8"
)

// class is the set of character classes one character belongs to.
type class uint16

const (
	upper    class = 1 << iota // \p{Lu} \p{Lt}
	lower                      // \p{Ll}
	uncased                    // \p{Lm} \p{Lo}
	mark                       // \p{M}
	number                     // \p{N}
	space                      // \s: White_Space
	newline                    // \r \n
	slash                      // /
	han                        // \p{Han}: the script, so 々 and 〇 are in it
	punct                      // \p{P}
	symbolic                   // \p{S}
	kanaHan                    // [一-龥぀-ゟ゠-ヿ], DeepSeek's block ranges

	letter = upper | lower | uncased // \p{L}
)

const pageRunes = 256

// classTable caches the classes of characters, a page of 256 at a time. Pages
// fill on first use; filling twice stores the same values, so readers need no lock.
type classTable struct {
	ascii [utf8.RuneSelf]class
	pages [(unicode.MaxRune + 1) / pageRunes]atomic.Pointer[[pageRunes]class]
}

func newClassTable() *classTable {
	t := &classTable{}
	for r := range t.ascii {
		t.ascii[r] = classOf(rune(r))
	}
	return t
}

// at returns the class of the character of s that starts at byte i and its
// length in bytes, 0 at the end of s. s is valid UTF-8.
func (t *classTable) at(s string, i int) (class, int) {
	if i >= len(s) {
		return 0, 0
	}
	if b := s[i]; b < utf8.RuneSelf {
		return t.ascii[b], 1
	}
	r, size := utf8.DecodeRuneInString(s[i:])
	return t.of(r), size
}

func (t *classTable) of(r rune) class {
	slot := &t.pages[r/pageRunes]
	page := slot.Load()
	if page == nil {
		page = new([pageRunes]class)
		first := r / pageRunes * pageRunes
		for i := range page {
			page[i] = classOf(first + rune(i))
		}
		slot.Store(page)
	}
	return page[r%pageRunes]
}

// run returns the end of the longest run from i of characters in set.
func (t *classTable) run(s string, i int, set class) int {
	for {
		c, size := t.at(s, i)
		if c&set == 0 {
			return i
		}
		i += size
	}
}

// runNot returns the end of the longest run from i of characters not in set.
func (t *classTable) runNot(s string, i int, set class) int {
	for {
		c, size := t.at(s, i)
		if size == 0 || c&set != 0 {
			return i
		}
		i += size
	}
}

func classOf(r rune) class {
	var c class
	add := func(is bool, bit class) {
		if is {
			c |= bit
		}
	}
	add(unicode.In(r, unicode.Lu, unicode.Lt), upper)
	add(unicode.Is(unicode.Ll, r), lower)
	add(unicode.In(r, unicode.Lm, unicode.Lo), uncased)
	add(unicode.Is(unicode.M, r), mark)
	add(unicode.Is(unicode.N, r), number)
	add(unicode.IsSpace(r), space)
	add(r == '\r' || r == '\n', newline)
	add(r == '/', slash)
	add(unicode.Is(unicode.Han, r), han)
	add(unicode.Is(unicode.P, r), punct)
	add(unicode.Is(unicode.S, r), symbolic)
	add(r >= 0x4E00 && r <= 0x9FA5 || r >= 0x3040 && r <= 0x30FF, kanaHan)
	return c
}
