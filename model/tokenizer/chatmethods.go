package tokenizer

import (
	"fmt"
	"math"
	"strings"
	"unicode"

	"github.com/ardanlabs/jinja"
)

// isStringMethod reports whether callMethod stands in for a method: the engine lacks it, or
// (split) ignores an argument.
func isStringMethod(name string) bool {
	switch name {
	case "join", "split", "rsplit", "splitlines", "removeprefix", "removesuffix", "isdigit", "isspace", "isupper", "islower":
		return true
	}
	return false
}

// callMethod is octet_method(name, text, arguments...).
func callMethod(a callArgs) (jinja.Value, error) {
	name := pythonStr(a.at(0, ""))
	if !a.at(1, "").IsString() {
		return jinja.None(), fmt.Errorf("%s is called on something that is not a string", name)
	}
	text := a.at(1, "").AsString()
	argument := a.at(2, "sep")
	switch name {
	case "join":
		return joinStrings(text, argument)
	case "split", "rsplit":
		limit := math.MaxInt32
		if n := a.at(3, "maxsplit"); n.IsInt() && n.AsInt() >= 0 {
			limit = int(min(n.AsInt(), math.MaxInt32-1))
		}
		if name == "rsplit" && !argument.IsString() {
			return jinja.None(), fmt.Errorf("rsplit takes a separator")
		}
		return stringList(splitString(text, argument, limit, name == "rsplit")), nil
	case "splitlines":
		lines := strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text), "\n")
		if lines[len(lines)-1] == "" {
			lines = lines[:len(lines)-1]
		}
		return stringList(lines), nil
	case "removeprefix":
		return jinja.NewString(strings.TrimPrefix(text, pythonStr(argument))), nil
	case "removesuffix":
		return jinja.NewString(strings.TrimSuffix(text, pythonStr(argument))), nil
	case "isdigit":
		return jinja.NewBool(all(text, unicode.IsDigit)), nil
	case "isspace":
		return jinja.NewBool(all(text, isPythonSpace)), nil
	case "isupper":
		return jinja.NewBool(text != strings.ToLower(text) && text == strings.ToUpper(text)), nil
	}
	return jinja.NewBool(text != strings.ToUpper(text) && text == strings.ToLower(text)), nil
}

func all(text string, is func(rune) bool) bool {
	return text != "" && strings.IndexFunc(text, func(r rune) bool { return !is(r) }) < 0
}

func joinStrings(separator string, list jinja.Value) (jinja.Value, error) {
	if !list.IsList() {
		return jinja.None(), fmt.Errorf("join takes a list")
	}
	parts := make([]string, 0, list.AsList().Len())
	for _, item := range list.AsList().Items {
		if !item.IsString() {
			return jinja.None(), fmt.Errorf("join takes a list of strings")
		}
		parts = append(parts, item.AsString())
	}
	return jinja.NewString(strings.Join(parts, separator)), nil
}

// splitString cuts at most limit times, from the right if so asked. Without a separator it cuts at
// white space and drops empty parts.
func splitString(text string, separator jinja.Value, limit int, fromRight bool) []string {
	if separator.IsNone() || separator.IsUndefined() {
		return splitSpace(text, limit)
	}
	cut := pythonStr(separator)
	if cut == "" {
		return []string{text}
	}
	if !fromRight {
		return strings.SplitN(text, cut, limit+1)
	}
	parts := strings.Split(text, cut)
	if extra := len(parts) - 1 - limit; extra > 0 {
		parts = append([]string{strings.Join(parts[:extra+1], cut)}, parts[extra+1:]...)
	}
	return parts
}

func splitSpace(text string, limit int) []string {
	var parts []string
	for text = strings.TrimLeftFunc(text, isPythonSpace); text != ""; text = strings.TrimLeftFunc(text, isPythonSpace) {
		at := strings.IndexFunc(text, isPythonSpace)
		if at < 0 || len(parts) == limit {
			return append(parts, text)
		}
		parts = append(parts, text[:at])
		text = text[at:]
	}
	return parts
}

func stringList(parts []string) jinja.Value {
	items := make([]jinja.Value, len(parts))
	for i, part := range parts {
		items[i] = jinja.NewString(part)
	}
	return jinja.NewList(items)
}
