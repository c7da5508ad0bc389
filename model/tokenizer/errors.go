package tokenizer

import "fmt"

// FormatError says what is wrong with a tokenizer's files.
type FormatError struct {
	File    string
	Field   string // path of the field inside it, empty for the whole file
	Problem string
}

func (e *FormatError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("tokenizer: %s: %s", e.File, e.Problem)
	}
	return fmt.Sprintf("tokenizer: %s: %s: %s", e.File, e.Field, e.Problem)
}

// field returns a FormatError without a file, which the reader of the file fills in.
func field(path, format string, args ...any) *FormatError {
	return &FormatError{Field: path, Problem: fmt.Sprintf(format, args...)}
}
