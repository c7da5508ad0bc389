package tokenizer

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The names under which templates reach our versions of what the engine has but does otherwise.
const (
	printFilter    = "octet_str"    // after every {{ }}: str() as Python has it
	methodFunction = "octet_method" // for methods of strings that the engine lacks
)

// prepareTemplate rewrites a template so that the engine gives what Jinja2 gives with
// transformers' settings (trim_blocks, lstrip_blocks). White space is settled here, by Jinja2's rules, and all text becomes
// string expressions, which the engine leaves alone. {% raw %} becomes text; {% generation %}, which
// only marks, goes.
func prepareTemplate(source string) (string, error) {
	p := &preparer{source: strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(source), lineStart: true}
	p.source = strings.TrimSuffix(p.source, "\n")
	for p.at < len(p.source) {
		if err := p.step(); err != nil {
			return "", err
		}
	}
	return p.out.String(), nil
}

type preparer struct {
	source    string
	at        int
	lineStart bool // the last tag ended with a line break
	out       strings.Builder
}

// step takes the text up to the next tag, and the tag.
func (p *preparer) step() error {
	rest := p.source[p.at:]
	open := nextTag(rest)
	if open < 0 {
		p.text(rest)
		p.at = len(p.source)
		return nil
	}
	text, kind := rest[:open], rest[open+1]
	p.at += open + 2
	sign := p.sign()
	switch {
	case sign == '-':
		text = strings.TrimRightFunc(text, unicode.IsSpace)
	case sign != '+' && kind != '{':
		text = p.stripIndent(text)
	}
	p.text(text)
	switch kind {
	case '#':
		return p.comment()
	case '{':
		return p.expression()
	}
	return p.statement()
}

// nextTag returns where the next tag opens, -1 if none does.
func nextTag(s string) int {
	for i := 0; i+1 < len(s); i++ {
		if s[i] == '{' && (s[i+1] == '{' || s[i+1] == '%' || s[i+1] == '#') {
			return i
		}
	}
	return -1
}

// sign takes the - or + after the opening of a tag.
func (p *preparer) sign() byte {
	if p.at < len(p.source) && (p.source[p.at] == '-' || p.source[p.at] == '+') {
		p.at++
		return p.source[p.at-1]
	}
	return 0
}

// stripIndent removes the white space before a tag that stands first in its line.
func (p *preparer) stripIndent(text string) string {
	line := strings.LastIndexByte(text, '\n') + 1
	if (line > 0 || p.lineStart) && strings.TrimSpace(text[line:]) == "" {
		return text[:line]
	}
	return text
}

// text writes text as a string expression.
func (p *preparer) text(s string) {
	if s == "" {
		return
	}
	p.out.WriteString("{{'")
	p.out.WriteString(strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`).Replace(s))
	p.out.WriteString("'}}")
}

func (p *preparer) comment() error {
	end := strings.Index(p.source[p.at:], "#}")
	if end < 0 {
		return fmt.Errorf("a comment is not closed")
	}
	var sign byte
	if end > 0 {
		sign = p.source[p.at+end-1]
	}
	p.at += end + 2
	p.afterTag(sign, true)
	return nil
}

// afterTag takes the white space that belongs to a closed tag.
func (p *preparer) afterTag(sign byte, block bool) {
	begin := p.at
	switch {
	case sign == '-':
		p.at = len(p.source) - len(strings.TrimLeftFunc(p.source[p.at:], unicode.IsSpace))
	case sign != '+' && block && strings.HasPrefix(p.source[p.at:], "\n"):
		p.at++
	}
	p.lineStart = p.at > begin && p.source[p.at-1] == '\n'
}

func (p *preparer) expression() error {
	body, sign, err := p.body("}}")
	if err != nil {
		return err
	}
	fmt.Fprintf(&p.out, "{{(%s)|%s}}", body, printFilter)
	p.afterTag(sign, false)
	return nil
}

func (p *preparer) statement() error {
	body, sign, err := p.body("%}")
	if err != nil {
		return err
	}
	switch name := strings.TrimSpace(body); name {
	case "generation", "endgeneration":
		p.afterTag(sign, true)
		return nil
	case "raw":
		p.afterTag(sign, false) // trim_blocks does not apply to it
		return p.raw()
	}
	if body, err = loopFilter(body); err != nil {
		return err
	}
	if fields := strings.Fields(body); len(fields) > 2 && fields[0] == "set" && strings.HasPrefix(fields[2], "|") && !strings.Contains(body, "=") {
		return fmt.Errorf("a filter on a set block is not supported: %q", strings.TrimSpace(body))
	}
	fmt.Fprintf(&p.out, "{%%%s%%}", body)
	p.afterTag(sign, true)
	return nil
}

// raw takes everything up to {% endraw %} as text.
func (p *preparer) raw() error {
	for from := p.at; ; {
		open := strings.Index(p.source[from:], "{%")
		if open < 0 {
			return fmt.Errorf("{%% raw %%} is not closed")
		}
		text := p.source[p.at : from+open]
		q := &preparer{source: p.source, at: from + open + 2}
		opening := q.sign()
		body, sign, err := q.body("%}")
		if err != nil || strings.TrimSpace(body) != "endraw" {
			from += open + 2
			continue
		}
		if opening == '-' {
			text = strings.TrimRightFunc(text, unicode.IsSpace)
		} else if opening != '+' {
			text = p.stripIndent(text)
		}
		p.text(text)
		p.at = q.at
		p.afterTag(sign, true)
		return nil
	}
}

// body takes the inside of a tag up to its closing, which does not count inside strings and brackets, as the engine
// is to see it (see tagBody).
func (p *preparer) body(closing string) (body string, sign byte, err error) {
	t := tagBody{filters: ownFilters()}
	for p.at < len(p.source) {
		rest := p.source[p.at:]
		if len(t.open) == 0 {
			if (rest[0] == '-' || rest[0] == '+') && strings.HasPrefix(rest[1:], closing) {
				p.at += 1 + len(closing)
				return " " + string(t.out) + " ", rest[0], nil
			}
			if strings.HasPrefix(rest, closing) {
				p.at += len(closing)
				return " " + string(t.out) + " ", 0, nil
			}
		}
		n := 1
		switch c := rest[0]; {
		case c == '\'' || c == '"':
			text, err := p.quoted(c)
			if err != nil {
				return "", 0, err
			}
			t.literal(text)
			continue
		case isIdentifier(c):
			for n < len(rest) && isIdentifier(rest[n]) {
				n++
			}
			after := strings.TrimLeftFunc(rest[n:], unicode.IsSpace)
			if strings.HasPrefix(after, "(") && t.method(rest[:n], after[1:]) {
				n = len(rest) - len(after) + 1
				break
			}
			t.word(rest[:n])
		default:
			t.char(c)
		}
		p.at += n
		if t.problem != "" {
			return "", 0, fmt.Errorf("%s is not supported", t.problem)
		}
	}
	return "", 0, fmt.Errorf("a tag is not closed, %q is missing", closing)
}

// quoted takes a string literal and returns it with its escapes resolved as Jinja2 does.
func (p *preparer) quoted(quote byte) (string, error) {
	rest := p.source[p.at:]
	for i := 1; i < len(rest); i++ {
		if rest[i] == '\\' {
			i++
			continue
		}
		if rest[i] == quote {
			p.at += i + 1
			return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`).Replace(unescape(rest[1:i])) + "'", nil
		}
	}
	return "", fmt.Errorf("a string in a tag is not closed: %.20q", rest)
}

// unescape resolves the escapes of a Python string literal. Unknown ones stay as they are.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		if at := strings.IndexByte(escapeNames, s[i]); at >= 0 {
			b.WriteByte(escapeBytes[at])
			continue
		}
		digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[s[i]]
		var r rune
		if digits > 0 && i+digits < len(s) {
			if n, err := fmt.Sscanf(s[i+1:i+1+digits], fmt.Sprintf("%%%dx", digits), &r); err == nil && n == 1 && utf8.ValidRune(r) {
				b.WriteRune(r)
				i += digits
				continue
			}
		}
		if s[i] != '\n' { // a line continued
			b.WriteByte('\\')
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

const (
	escapeNames = `\'"abfnrtv`
	escapeBytes = "\\'\"\a\b\f\n\r\t\v"
)

func isIdentifier(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
