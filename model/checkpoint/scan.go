package checkpoint

import (
	"bytes"
	"strings"
)

// entry is one tensor of a header as it is written there.
type entry struct {
	name       string
	dtype      string
	shape      []uint64
	begin, end uint64
}

// scanHeader reads a header of the form that every writer produces: plain names,
// the three fields, whole numbers. Large models have a hundred thousand tensors
// and every rank reads them all, which a general JSON reader takes seconds for.
// For anything else it returns false, and the general reader decides.
func scanHeader(data []byte) ([]entry, bool) {
	// Names and types are parts of this one string.
	s := scanner{text: string(data)}
	count := min(bytes.Count(data, []byte(`"data_offsets"`)), len(data)/shortestEntry)
	entries := make([]entry, 0, count)
	s.numbers = make([]uint64, 0, 2*count)
	if !s.next('{') {
		return nil, false
	}
	for first := true; !s.next('}'); first = false {
		if !first && !s.next(',') {
			return nil, false
		}
		name, ok := s.key()
		if !ok {
			return nil, false
		}
		if name == metadataName {
			if !s.metadata() {
				return nil, false
			}
			continue
		}
		e, ok := s.entry(name)
		if !ok {
			return nil, false
		}
		entries = append(entries, e)
	}
	s.space()
	return entries, s.at == len(s.text)
}

// shortestEntry is the length of an entry without a name, a type or a shape.
const shortestEntry = len(`"":{"dtype":"","shape":[],"data_offsets":[0,0]}`)

type scanner struct {
	text    string
	at      int
	numbers []uint64 // backs the shapes
}

func (s *scanner) space() {
	for s.at < len(s.text) && strings.IndexByte(" \t\r\n", s.text[s.at]) >= 0 {
		s.at++
	}
}

// next skips space and takes c if it is there.
func (s *scanner) next(c byte) bool {
	s.space()
	if s.at < len(s.text) && s.text[s.at] == c {
		s.at++
		return true
	}
	return false
}

// str takes a string of printable ASCII without escapes.
func (s *scanner) str() (string, bool) {
	if !s.next('"') {
		return "", false
	}
	for begin := s.at; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return s.text[begin : s.at-1], true
		case c == '\\' || c < ' ' || c > '~':
			return "", false
		}
	}
	return "", false
}

func (s *scanner) key() (string, bool) {
	name, ok := s.str()
	return name, ok && s.next(':')
}

// number takes a whole number of at most 18 digits.
func (s *scanner) number() (uint64, bool) {
	s.space()
	begin, n := s.at, uint64(0)
	for s.at < len(s.text) && s.text[s.at]-'0' <= 9 {
		n = 10*n + uint64(s.text[s.at]-'0')
		s.at++
	}
	digits := s.at - begin
	return n, digits == 1 || digits > 1 && digits <= 18 && s.text[begin] != '0'
}

// list takes a list of numbers.
func (s *scanner) list() ([]uint64, bool) {
	if !s.next('[') {
		return nil, false
	}
	begin := len(s.numbers)
	for !s.next(']') {
		if len(s.numbers) > begin && !s.next(',') {
			return nil, false
		}
		n, ok := s.number()
		if !ok {
			return nil, false
		}
		s.numbers = append(s.numbers, n)
	}
	return s.numbers[begin:len(s.numbers):len(s.numbers)], true
}

// metadata skips an object of strings.
func (s *scanner) metadata() bool {
	if !s.next('{') {
		return false
	}
	for first := true; !s.next('}'); first = false {
		if !first && !s.next(',') {
			return false
		}
		if _, ok := s.key(); !ok {
			return false
		}
		if _, ok := s.str(); !ok {
			return false
		}
	}
	return true
}

// entry takes an object with each of the three fields once.
func (s *scanner) entry(name string) (entry, bool) {
	e := entry{name: name}
	if !s.next('{') {
		return e, false
	}
	var dtype, shape, offsets bool
	for i := range 3 {
		if i > 0 && !s.next(',') {
			return e, false
		}
		key, ok := s.key()
		if !ok {
			return e, false
		}
		switch {
		case key == "dtype" && !dtype:
			e.dtype, dtype = s.str()
		case key == "shape" && !shape:
			e.shape, shape = s.list()
		case key == "data_offsets" && !offsets:
			var pair []uint64
			if pair, ok = s.list(); ok && len(pair) == 2 {
				e.begin, e.end, offsets = pair[0], pair[1], true
			}
		}
	}
	return e, dtype && shape && offsets && s.next('}')
}
