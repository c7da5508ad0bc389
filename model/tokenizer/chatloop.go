package tokenizer

import (
	"fmt"
	"strings"
)

// loopFilter mends the filter of a loop over pairs, for k, v in x if k != y. The engine tries the
// filter with the second name standing for the whole pair; so there the names become v[0] and v[1].
func loopFilter(body string) (string, error) {
	words := tagWords(body)
	if len(words) < 4 || words[0].text != "for" {
		return body, nil
	}
	names := []string{}
	in, condition := -1, -1
	for i, w := range words[1:] {
		switch {
		case in < 0 && w.text == "in":
			in = i + 1
		case in < 0:
			names = append(names, w.text)
		case w.depth == 0 && w.text == "if" && condition < 0:
			condition = w.end
		}
	}
	if condition < 0 || len(names) != 2 {
		return body, nil
	}
	var b strings.Builder
	done := 0
	for _, w := range words {
		if w.end <= condition || w.member {
			continue
		}
		for i, name := range names {
			if w.text != name {
				continue
			}
			if w.named {
				return "", fmt.Errorf("the loop variable %s names an argument in the loop's filter, which is not supported", name)
			}
			fmt.Fprintf(&b, "%s%s[%d]", body[done:w.end-len(name)], names[1], i)
			done = w.end
		}
	}
	return b.String() + body[done:], nil
}

// tagWord is a name in a tag, outside of string literals.
type tagWord struct {
	text   string
	end    int  // byte behind it
	depth  int  // brackets it stands in
	member bool // follows a dot
	named  bool // is followed by =, as a named argument is
}

// tagWords lists the names of a tag whose string literals stand in single quotes.
func tagWords(body string) []tagWord {
	var words []tagWord
	depth := 0
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case c == '\'':
			for i++; i < len(body) && body[i] != '\''; i++ {
				if body[i] == '\\' {
					i++
				}
			}
		case c == '(' || c == '[' || c == '{':
			depth++
		case c == ')' || c == ']' || c == '}':
			depth--
		case isIdentifier(c):
			begin := i
			for i < len(body) && isIdentifier(body[i]) {
				i++
			}
			after := strings.TrimSpace(body[i:])
			words = append(words, tagWord{
				text: body[begin:i], end: i, depth: depth,
				member: strings.HasSuffix(strings.TrimSpace(body[:begin]), "."),
				named:  strings.HasPrefix(after, "=") && !strings.HasPrefix(after, "=="),
			})
			i--
		}
	}
	return words
}
