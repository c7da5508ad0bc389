package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// ConfigError is a field of a configuration file that Octet cannot accept.
type ConfigError struct {
	File   string
	Field  string // dotted path, "" for the file as a whole
	Value  string // as it stands in the file, "" when absent
	Reason string // what was expected, and what to do
}

// Error is one sentence that names file, field, value and remedy.
func (e *ConfigError) Error() string {
	switch {
	case e.Field == "":
		return fmt.Sprintf("%s: %s", e.File, e.Reason)
	case e.Value == "":
		return fmt.Sprintf("%s: field %s is missing: %s", e.File, e.Field, e.Reason)
	}
	var oneLine bytes.Buffer
	if json.Compact(&oneLine, []byte(e.Value)) != nil {
		oneLine.Reset()
		oneLine.WriteString(e.Value)
	}
	return fmt.Sprintf("%s: field %s is %s: %s", e.File, e.Field, oneLine.String(), e.Reason)
}

// maxConfigBytes is far above any published config.json.
const maxConfigBytes = 8 << 20

// Fields reads a JSON object field by field. The first bad field sticks: read
// everything, then ask Err.
type Fields struct {
	file   string
	prefix string
	raw    map[string]json.RawMessage
	err    *error
}

// ReadFields reads a JSON object from a file.
func ReadFields(path string) (*Fields, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &ConfigError{File: path, Reason: "expected a file"}
	}
	if info.Size() > maxConfigBytes {
		return nil, &ConfigError{File: path, Reason: fmt.Sprintf("%d bytes is too large for a configuration", info.Size())}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return ParseFields(path, data)
}

// ParseFields reads a JSON object; file names it in errors.
func ParseFields(file string, data []byte) (*Fields, error) {
	f := &Fields{file: file, err: new(error)}
	if err := json.Unmarshal(data, &f.raw); err != nil {
		return nil, &ConfigError{File: file, Reason: "not a JSON object: " + err.Error()}
	}
	if f.raw == nil {
		return nil, &ConfigError{File: file, Reason: "expected a JSON object, found null"}
	}
	return f, nil
}

// Err is the first problem found.
func (f *Fields) Err() error { return *f.err }

// Fail records a problem with a field, unless there is one already.
func (f *Fields) Fail(name, reason string) {
	if *f.err != nil {
		return
	}
	value := ""
	if raw, ok := f.raw[name]; ok {
		value = abridge(raw)
	}
	*f.err = &ConfigError{File: f.file, Field: f.prefix + name, Value: value, Reason: reason}
}

func abridge(raw json.RawMessage) string {
	const limit = 80
	if len(raw) <= limit {
		return string(raw)
	}
	return string(raw[:limit]) + "..."
}

// Has reports whether a field is there and not null.
func (f *Fields) Has(name string) bool {
	raw, ok := f.raw[name]
	return ok && !bytes.Equal(bytes.TrimSpace(raw), []byte("null"))
}

// Given reports whether a field is there, be it null.
func (f *Fields) Given(name string) bool {
	_, ok := f.raw[name]
	return ok
}

// Object is a nested object; nil where it is absent.
func (f *Fields) Object(name string) *Fields {
	if !f.Has(name) {
		return nil
	}
	sub := &Fields{file: f.file, prefix: f.prefix + name + ".", err: f.err}
	if json.Unmarshal(f.raw[name], &sub.raw) != nil {
		f.Fail(name, "expected an object")
		return nil
	}
	return sub
}

func read[T any](f *Fields, name string, fallback T, expected string) T {
	if !f.Has(name) {
		return fallback
	}
	var v T
	if json.Unmarshal(f.raw[name], &v) != nil {
		f.Fail(name, "expected "+expected)
		return fallback
	}
	return v
}

// Bool is a boolean field.
func (f *Fields) Bool(name string, fallback bool) bool {
	return read(f, name, fallback, "true or false")
}

// Float is a number.
func (f *Fields) Float(name string, fallback float64) float64 {
	return read(f, name, fallback, "a number")
}

// String is a string field.
func (f *Fields) String(name, fallback string) string {
	return read(f, name, fallback, "a string")
}

// Strings is a list of strings.
func (f *Fields) Strings(name string) []string {
	return read[[]string](f, name, nil, "a list of strings")
}

// Ints is a list of integers.
func (f *Fields) Ints(name string) []int {
	return read[[]int](f, name, nil, "a list of integers")
}

// IntOrList is an integer or a list of them (eos_token_id).
func (f *Fields) IntOrList(name string) []int32 {
	if !f.Has(name) {
		return nil
	}
	var one int32
	if json.Unmarshal(f.raw[name], &one) == nil {
		return []int32{one}
	}
	return read[[]int32](f, name, nil, "a token id or a list of them")
}

// maxCount bounds every count in a configuration, so that products of two fit an int.
const maxCount = 1 << 30

// Int is an integer from 0 to maxCount. Floats with no fraction are accepted.
func (f *Fields) Int(name string, fallback int) int {
	if !f.Has(name) {
		return fallback
	}
	v := read(f, name, float64(0), "an integer")
	if v != float64(int(v)) || v < 0 || v > maxCount {
		f.Fail(name, fmt.Sprintf("expected an integer from 0 to %d", maxCount))
		return fallback
	}
	return int(v)
}

// IntOr is Int with one value where the field is left out and another where it is null.
func (f *Fields) IntOr(name string, absent, null int) int {
	if f.Given(name) {
		return f.Int(name, null)
	}
	return absent
}

// Floats is a list of numbers.
func (f *Fields) Floats(name string) []float64 {
	return read[[]float64](f, name, nil, "a list of numbers")
}

// Count is a positive integer that must be there.
func (f *Fields) Count(name string) int {
	if !f.Has(name) {
		f.Fail(name, "expected a positive integer")
		return 1
	}
	v := f.Int(name, 1)
	if v < 1 {
		f.Fail(name, "expected a positive integer")
		return 1
	}
	return v
}

// OneOf is a string field that must be one of the values.
func (f *Fields) OneOf(name, fallback string, allowed ...string) string {
	v := f.String(name, fallback)
	for _, a := range allowed {
		if v == a {
			return v
		}
	}
	f.Fail(name, "supported are "+strings.Join(allowed, ", "))
	return v
}
