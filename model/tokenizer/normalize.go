package tokenizer

import (
	"encoding/json"
	"strings"
)

// normalize rewrites a stretch of text between added tokens.
type normalize func(string) string

// parseNormalizer reads the normalizer of tokenizer.json. Nil leaves the text as it is.
func parseNormalizer(raw json.RawMessage, path string) (normalize, error) {
	var spec struct {
		Type        string            `json:"type"`
		Normalizers []json.RawMessage `json:"normalizers"`
		Prepend     string            `json:"prepend"`
		Pattern     patternSpec       `json:"pattern"`
		Content     string            `json:"content"`
	}
	if absent(raw) {
		return nil, nil
	}
	if err := decodeField(raw, path, &spec); err != nil {
		return nil, err
	}
	if f, ok := formOf(spec.Type); ok {
		return f.normalize, nil
	}
	switch spec.Type {
	case "Prepend":
		return func(s string) string {
			if s == "" {
				return s
			}
			return spec.Prepend + s
		}, nil
	case "Replace":
		return replaceNormalizer(spec.Pattern, spec.Content, path)
	case "Sequence":
		return sequenceNormalizer(spec.Normalizers, path)
	}
	return nil, field(path+".type", "normalizer %q is not supported (supported: NFC, NFD, NFKC, NFKD, Prepend, "+
		"Replace, Sequence)", spec.Type)
}

func replaceNormalizer(pattern patternSpec, content, path string) (normalize, error) {
	from, err := pattern.literal(path + ".pattern")
	if err != nil {
		return nil, err
	}
	return func(s string) string { return strings.ReplaceAll(s, from, content) }, nil
}

func sequenceNormalizer(specs []json.RawMessage, path string) (normalize, error) {
	var steps []normalize
	for i, raw := range specs {
		step, err := parseNormalizer(raw, element(path+".normalizers", i))
		if err != nil {
			return nil, err
		}
		if step != nil {
			steps = append(steps, step)
		}
	}
	return func(s string) string {
		for _, step := range steps {
			s = step(s)
		}
		return s
	}, nil
}
