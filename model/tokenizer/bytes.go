package tokenizer

import "unicode/utf8"

// byteAlphabet is GPT-2's mapping between bytes and printable characters: bytes that
// print in Latin-1 stand for themselves, the others follow from U+0100 on.
type byteAlphabet struct {
	char   [256]rune
	byteOf map[rune]byte
}

func newByteAlphabet() *byteAlphabet {
	a := &byteAlphabet{byteOf: make(map[rune]byte, 256)}
	next := rune(256)
	for b := range a.char {
		r := rune(b)
		if !(r >= '!' && r <= '~' || r >= 0xA1 && r <= 0xAC || r >= 0xAE && r <= 0xFF) {
			r = next
			next++
		}
		a.char[b] = r
		a.byteOf[r] = byte(b)
	}
	return a
}

// decode returns the bytes that token stands for, false when it has a
// character outside the alphabet.
func (a *byteAlphabet) decode(token string) (string, bool) {
	buf := make([]byte, 0, len(token))
	for _, r := range token {
		b, ok := a.byteOf[r]
		if !ok {
			return "", false
		}
		buf = append(buf, b)
	}
	return string(buf), true
}

// incompleteSuffix returns how many bytes at the end of b begin a UTF-8 sequence that
// more bytes could complete.
func incompleteSuffix(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		tail := b[len(b)-n:]
		if !utf8.RuneStart(tail[0]) {
			continue
		}
		if utf8.FullRune(tail) {
			return 0
		}
		return n
	}
	return 0
}

// appendLossy appends b to dst with every maximal invalid part (Unicode 3.9, as in
// Python's and Rust's lossy decoding) replaced by U+FFFD.
func appendLossy(dst, b []byte) []byte {
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		if r != utf8.RuneError || size > 1 {
			dst = append(dst, b[:size]...)
			b = b[size:]
			continue
		}
		dst = utf8.AppendRune(dst, utf8.RuneError)
		b = b[invalidPrefix(b):]
	}
	return dst
}

// invalidPrefix returns the length of the maximal part at the start of b that is a
// truncated sequence, at least 1. b starts with an invalid sequence.
func invalidPrefix(b []byte) int {
	n := 1
	for n < len(b) && n < utf8.UTFMax && !utf8.FullRune(b[:n]) {
		n++
	}
	// b[:n] is the shortest part known to be bad: its last byte broke the sequence,
	// unless the first byte alone did or the input ended.
	if n > 1 && utf8.FullRune(b[:n]) {
		n--
	}
	return n
}

// validText returns text with every maximal invalid part replaced by U+FFFD.
func validText(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return string(appendLossy(make([]byte, 0, len(text)+8), []byte(text)))
}
