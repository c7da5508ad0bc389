package tokenizer

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// unicodeForm is a normalisation form as the reference tokenizers know it: that of
// Unicode 9, and without the joiner that golang.org/x/text puts into long runs of marks.
type unicodeForm struct {
	form      norm.Form
	decompose norm.Form // NFD, or NFKD for the compatibility forms
	composes  bool
}

func formOf(name string) (unicodeForm, bool) {
	f, ok := map[string]unicodeForm{
		"NFC": {norm.NFC, norm.NFD, true}, "NFD": {norm.NFD, norm.NFD, false},
		"NFKC": {norm.NFKC, norm.NFKD, true}, "NFKD": {norm.NFKD, norm.NFKD, false},
	}[name]
	return f, ok
}

func (f unicodeForm) normalize(s string) string {
	if f.form.IsNormalString(s) {
		return s
	}
	// A character that Unicode 9 does not have neither moves nor joins.
	var b strings.Builder
	done := 0
	for i, r := range s {
		if r >= firstLater && unicode.Is(later, r) {
			b.WriteString(f.part(s[done:i]))
			done = i + utf8.RuneLen(r)
			b.WriteString(s[i:done])
		}
	}
	if done == 0 {
		return f.part(s)
	}
	b.WriteString(f.part(s[done:]))
	return b.String()
}

// maxMarks is a run of marks that x/text normalises as the standard says: it adds a
// joiner after 30, of which a mark can decompose to two and the letter before to three.
const maxMarks = 10

func (f unicodeForm) part(s string) string {
	marks := 0
	for _, r := range s {
		if r < utf8.RuneSelf || !unicode.Is(unicode.M, r) {
			marks = 0
		} else if marks++; marks > maxMarks {
			return f.plain(s)
		}
	}
	return f.form.String(s)
}

// marked is a character and its canonical combining class.
type marked struct {
	char  rune
	class uint8
}

// plain is the algorithm of the standard (UAX 15): decompose, order marks, compose.
func (f unicodeForm) plain(s string) string {
	var chars []marked
	begin := 0 // of the marks at the end
	order := func() {
		slices.SortStableFunc(chars[begin:], func(a, b marked) int { return int(a.class) - int(b.class) })
	}
	for _, r := range s {
		for _, d := range f.decompose.String(string(r)) {
			c := marked{d, f.decompose.PropertiesString(string(d)).CCC()}
			if c.class == 0 {
				order()
				begin = len(chars) + 1
			}
			chars = append(chars, c)
		}
	}
	order()
	if f.composes {
		chars = compose(chars)
	}
	var b strings.Builder
	for _, c := range chars {
		b.WriteRune(c.char)
	}
	return b.String()
}

// compose joins characters with the last starter before them, unless one between has
// the same class or a higher one.
func compose(chars []marked) []marked {
	out := chars[:0]
	starter := -1
	for _, c := range chars {
		if starter >= 0 && (starter == len(out)-1 || out[len(out)-1].class < c.class && out[len(out)-1].class > 0) {
			pair := norm.NFC.String(string([]rune{out[starter].char, c.char}))
			if joined, size := utf8.DecodeRuneInString(pair); size == len(pair) {
				out[starter].char = joined
				continue
			}
		}
		if c.class == 0 {
			starter = len(out)
		}
		out = append(out, c)
	}
	return out
}

// firstLater is the least character of later.
const firstLater = 0x7FD

// later are the characters that took a part in normalisation after Unicode 9.
var later = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x07FD, 0x07FD, 1},
		{0x0898, 0x089F, 1},
		{0x08CA, 0x08D3, 1},
		{0x09FE, 0x09FE, 1},
		{0x0C3C, 0x0C3C, 1},
		{0x0D3B, 0x0D3C, 1},
		{0x0EBA, 0x0EBA, 1},
		{0x1715, 0x1715, 1},
		{0x1ABF, 0x1ACE, 1},
		{0x1DF6, 0x1DFA, 1},
		{0x32FF, 0x32FF, 1},
		{0xA7F2, 0xA7F4, 1},
		{0xA82C, 0xA82C, 1},
		{0xAB69, 0xAB69, 1},
	},
	R32: []unicode.Range32{
		{0x10781, 0x107BA, 1},
		{0x10D24, 0x10D27, 1},
		{0x10EAB, 0x10EAC, 1},
		{0x10EFD, 0x10EFF, 1},
		{0x10F46, 0x10F50, 1},
		{0x10F82, 0x10F85, 1},
		{0x11070, 0x11070, 1},
		{0x1133B, 0x1133B, 1},
		{0x1145E, 0x1145E, 1},
		{0x11839, 0x1183A, 1},
		{0x11930, 0x11943, 1},
		{0x119E0, 0x119E0, 1},
		{0x11A34, 0x11A34, 1},
		{0x11A47, 0x11A47, 1},
		{0x11A99, 0x11A99, 1},
		{0x11D42, 0x11D45, 1},
		{0x11D97, 0x11D97, 1},
		{0x11F41, 0x11F42, 1},
		{0x16FF0, 0x16FF1, 1},
		{0x1E030, 0x1E08F, 1},
		{0x1E130, 0x1E136, 1},
		{0x1E2AE, 0x1E2EF, 1},
		{0x1E4EC, 0x1E4EF, 1},
		{0x1F16C, 0x1F16C, 1},
		{0x1FBF0, 0x1FBF9, 1},
	},
}
