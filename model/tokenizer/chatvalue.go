package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/ardanlabs/jinja"
)

// templateValue turns JSON into a template's value, with the keys of objects in the order given.
func templateValue(raw json.RawMessage) (jinja.Value, error) {
	if err := decodeField(raw, "", new(any)); err != nil { // also bounds the depth
		return jinja.None(), err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	return decodeValue(dec)
}

// decodeValue takes one value of checked JSON.
func decodeValue(dec *json.Decoder) (jinja.Value, error) {
	token, err := dec.Token()
	if err != nil {
		return jinja.None(), err
	}
	switch token {
	case json.Delim('['):
		var items []jinja.Value
		for dec.More() {
			item, err := decodeValue(dec)
			if err != nil {
				return item, err
			}
			items = append(items, item)
		}
		_, err = dec.Token()
		return jinja.NewList(items), err
	case json.Delim('{'):
		dict := jinja.NewDict()
		for dec.More() {
			key, err := dec.Token()
			if err != nil {
				return dict, err
			}
			value, err := decodeValue(dec)
			if err != nil {
				return dict, err
			}
			dict.AsDict().Set(key.(string), value)
		}
		_, err = dec.Token()
		return dict, err
	}
	return jinja.FromGoValue(token), nil
}

// pythonStr is Python's str, with undefined as nothing.
func pythonStr(v jinja.Value) string {
	switch {
	case v.IsUndefined():
		return ""
	case v.IsString():
		return v.AsString()
	}
	return pythonRepr(v)
}

// pythonRepr is Python's repr.
func pythonRepr(v jinja.Value) string {
	switch {
	case v.IsString():
		return quotePython(v.AsString())
	case v.IsFloat():
		return pythonFloat(v.AsFloat())
	case v.IsList():
		parts := make([]string, 0, v.AsList().Len())
		for _, item := range v.AsList().Items {
			parts = append(parts, pythonRepr(item))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case v.IsDict():
		parts := make([]string, 0, v.AsDict().Len())
		for _, key := range v.AsDict().Keys {
			parts = append(parts, quotePython(key)+": "+pythonRepr(v.AsDict().Data[key]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return v.String()
}

func quotePython(s string) string {
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	b := []byte{quote}
	for _, r := range s {
		switch {
		case r == rune(quote) || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r < ' ' || r == 0x7F:
			b = fmt.Appendf(b, `\x%02x`, r)
		case !unicode.IsPrint(r) && r <= 0xFF:
			b = fmt.Appendf(b, `\x%02x`, r)
		case !unicode.IsPrint(r) && r <= 0xFFFF:
			b = fmt.Appendf(b, `\u%04x`, r)
		case !unicode.IsPrint(r):
			b = fmt.Appendf(b, `\U%08x`, r)
		default:
			b = append(b, string(r)...)
		}
	}
	return string(append(b, quote))
}

// pythonFloat is the repr of a float, which json.dumps writes too.
func pythonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 0):
		return strings.TrimPrefix(strconv.FormatFloat(f, 'g', -1, 64)[:1], "+") + "inf"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// jsonWriter is json.dumps, with ensure_ascii off unless asked for, as transformers sets it.
type jsonWriter struct {
	out         []byte
	indent      string // of one level; without, all is one line
	pretty      bool
	item, key   string // separators
	sortKeys    bool
	ensureASCII bool
}

func (w *jsonWriter) write(v jinja.Value, level int) {
	switch {
	case v.IsString():
		w.quote(v.AsString())
	case v.IsFloat():
		w.out = append(w.out, pythonFloat(v.AsFloat())...)
	case v.IsInt():
		w.out = strconv.AppendInt(w.out, v.AsInt(), 10)
	case v.IsBool():
		w.out = strconv.AppendBool(w.out, v.AsBool())
	case v.IsList():
		items := v.AsList().Items
		w.group('[', ']', len(items), level, func(i int) { w.write(items[i], level+1) })
	case v.IsDict():
		keys := v.AsDict().OrderedKeys()
		if w.sortKeys {
			slices.Sort(keys)
		}
		w.group('{', '}', len(keys), level, func(i int) {
			w.quote(keys[i])
			w.out = append(w.out, w.key...)
			w.write(v.AsDict().Data[keys[i]], level+1)
		})
	default:
		w.out = append(w.out, "null"...)
	}
}

func (w *jsonWriter) group(open, end byte, n, level int, write func(i int)) {
	w.out = append(w.out, open)
	for i := range n {
		if i > 0 {
			w.out = append(w.out, w.item...)
		}
		w.line(level + 1)
		write(i)
	}
	if n > 0 {
		w.line(level)
	}
	w.out = append(w.out, end)
}

func (w *jsonWriter) line(level int) {
	if !w.pretty {
		return
	}
	w.out = append(w.out, '\n')
	for range level {
		w.out = append(w.out, w.indent...)
	}
}

func (w *jsonWriter) quote(s string) {
	w.out = append(w.out, '"')
	for _, r := range s {
		switch r {
		case '"', '\\':
			w.out = append(w.out, '\\', byte(r))
		case '\n':
			w.out = append(w.out, `\n`...)
		case '\r':
			w.out = append(w.out, `\r`...)
		case '\t':
			w.out = append(w.out, `\t`...)
		case '\b':
			w.out = append(w.out, `\b`...)
		case '\f':
			w.out = append(w.out, `\f`...)
		default:
			w.char(r)
		}
	}
	w.out = append(w.out, '"')
}

func (w *jsonWriter) char(r rune) {
	switch {
	case r < ' ' || w.ensureASCII && r >= 0x7F && r <= 0xFFFF:
		w.out = fmt.Appendf(w.out, `\u%04x`, r)
	case w.ensureASCII && r > 0xFFFF:
		r -= 0x10000
		w.out = fmt.Appendf(w.out, `\u%04x\u%04x`, 0xD800+(r>>10), 0xDC00+(r&0x3FF))
	default:
		w.out = append(w.out, string(r)...)
	}
}
