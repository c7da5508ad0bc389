package checkpoint

import (
	"fmt"
	"strings"
)

// FormatError is a checkpoint that does not hold what it should.
type FormatError struct {
	File     string
	Tensor   string // "" for the file as a whole
	Expected string
	Found    string
	Advice   string // what to do about it, where that is known
}

// Error is one sentence: file, tensor, expected, found, advice.
func (e *FormatError) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Tensor != "" {
		fmt.Fprintf(&b, ": tensor %s", e.Tensor)
	}
	fmt.Fprintf(&b, ": expected %s, found %s", e.Expected, e.Found)
	if e.Advice != "" {
		b.WriteString("; " + e.Advice)
	}
	return b.String()
}
