package tokenizer

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/ardanlabs/jinja"
)

// tagBody rewrites the inside of a tag as it is read: closing brackets are set apart, so that two of them cannot be
// taken for the end of an expression; string literals side by side become one; tojson becomes our filter; and
// methods of strings that the engine lacks become calls, x.join(y) to octet_method('join', x, y).
type tagBody struct {
	out  []byte
	last int // end of the last string literal in out

	// chain is where the operand now being written starts: a name, literal or group and what follows it
	// by dot, index or call. Inside open brackets, theirs are kept in open.
	chain   int
	inChain bool
	open    []int

	filters map[string]func(callArgs) (jinja.Value, error) // that are ours
	problem string                                         // what stands in the tag and is not supported
}

// literal writes a string literal, quoted in single quotes.
func (t *tagBody) literal(text string) {
	if t.last > 0 && len(bytes.TrimSpace(t.out[t.last:])) == 0 {
		t.out, text = t.out[:t.last-1], text[1:]
	} else {
		t.operand()
	}
	t.out = append(t.out, text...)
	t.last, t.inChain = len(t.out), true
}

// operand begins a new operand, unless a dot says that it goes on.
func (t *tagBody) operand() {
	if !t.inChain || !t.follows('.') {
		t.chain = len(t.out)
	}
}

// follows reports whether c is the last thing written.
func (t *tagBody) follows(c byte) bool {
	return bytes.HasSuffix(bytes.TrimSpace(t.out), []byte{c})
}

func (t *tagBody) word(name string) {
	if before := bytes.TrimSpace(t.out); name[0] <= '9' && t.inChain && len(before) > 1 && t.follows('.') && before[len(before)-2] > '9' {
		t.problem = "an index behind a dot" // and not the fraction of a number
	}
	if _, ours := t.filters[name]; ours && t.follows('|') {
		name = ownFilter(name)
	}
	t.operand()
	t.out = append(t.out, name...)
	// A keyword operates on what follows.
	t.inChain = !slices.Contains([]string{"and", "or", "not", "in", "is", "if", "else", "for", "set"}, name)
}

func (t *tagBody) char(c byte) {
	switch c {
	case '(', '[', '{':
		if !t.inChain || c == '{' {
			t.chain = len(t.out)
		}
		t.open = append(t.open, t.chain)
		t.inChain = false
	case ')', ']', '}':
		if n := len(t.open); n > 0 {
			t.chain, t.open = t.open[n-1], t.open[:n-1]
		}
		t.inChain = true
		t.out = append(t.out, ' ')
	case '.', ' ', '\t', '\n':
	case '%':
		if t.last > 0 && len(bytes.TrimSpace(t.out[t.last:])) == 0 {
			t.problem = "the operator % on a string"
		}
		t.inChain = false
	default:
		t.inChain = false
	}
	t.out = append(t.out, c)
}

// method turns a call of a method into a call of our function; args is what stands behind its opening
// bracket. It reports whether it did.
func (t *tagBody) method(name, args string) bool {
	if !t.inChain || !t.follows('.') || !isStringMethod(name) {
		return false
	}
	dot := bytes.LastIndexByte(t.out, '.')
	receiver := string(t.out[t.chain:dot])
	t.out = fmt.Appendf(t.out[:t.chain], "%s('%s', %s", methodFunction, name, receiver)
	if trimmed := bytes.TrimSpace([]byte(args)); len(trimmed) > 0 && trimmed[0] != ')' {
		t.out = append(t.out, ", "...)
	}
	t.open = append(t.open, t.chain)
	t.inChain, t.last = false, 0
	return true
}
