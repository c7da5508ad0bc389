package tokenizer

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// patternSpec is {"String": text} or {"Regex": text}.
type patternSpec struct {
	String *string `json:"String"`
	Regex  *string `json:"Regex"`
}

func (p patternSpec) literal(path string) (string, error) {
	if p.Regex != nil {
		return "", field(path+".Regex", "a regular expression (%q) is not supported here, only a String", *p.Regex)
	}
	if p.String == nil || *p.String == "" {
		return "", field(path, "is empty, expected {\"String\": text}")
	}
	return *p.String, nil
}

// preTokenizer is the list of splits between normalisation and the model.
type preTokenizer struct {
	splitters []splitter
	byteLevel bool // pieces are encoded byte by byte
}

type preTokenizerSpec struct {
	Type             string            `json:"type"`
	PreTokenizers    []json.RawMessage `json:"pretokenizers"`
	Pattern          patternSpec       `json:"pattern"`
	Behavior         string            `json:"behavior"`
	Invert           bool              `json:"invert"`
	AddPrefixSpace   *bool             `json:"add_prefix_space"`
	UseRegex         *bool             `json:"use_regex"`
	IndividualDigits bool              `json:"individual_digits"`
	Replacement      string            `json:"replacement"`
	PrependScheme    string            `json:"prepend_scheme"`
	Split            *bool             `json:"split"`
}

// parse appends the stages of the pre_tokenizer field of tokenizer.json.
func (p *preTokenizer) parse(raw json.RawMessage, path string, classes *classTable) error {
	if absent(raw) {
		return nil
	}
	var spec preTokenizerSpec
	if err := decodeField(raw, path, &spec); err != nil {
		return err
	}
	if p.byteLevel {
		return field(path, "%q follows ByteLevel, which must come last", spec.Type)
	}
	switch spec.Type {
	case "Sequence":
		for i, raw := range spec.PreTokenizers {
			if err := p.parse(raw, element(path+".pretokenizers", i), classes); err != nil {
				return err
			}
		}
		return nil
	case "ByteLevel":
		s := &byteLevelSplit{prefixSpace: orDefault(spec.AddPrefixSpace, true)}
		if orDefault(spec.UseRegex, true) {
			words, _ := matchersOf(patternGPT2)
			s.words = &patternSplit{classes: classes, alternatives: words}
		}
		p.byteLevel = true
		p.splitters = append(p.splitters, s)
		return nil
	case "Split":
		s, err := spec.patternSplit(path, classes)
		if err != nil {
			return err
		}
		p.splitters = append(p.splitters, s)
		return nil
	case "Digits":
		s := &patternSplit{classes: classes, alternatives: []matcher{upTo(1, number)}}
		if !spec.IndividualDigits {
			s.alternatives = []matcher{in(number)}
		}
		p.splitters = append(p.splitters, s)
		return nil
	case "Metaspace":
		s, err := spec.metaspace(path, classes)
		if err != nil {
			return err
		}
		p.splitters = append(p.splitters, s)
		return nil
	}
	return field(path+".type", "pre-tokenizer %q is not supported (supported: ByteLevel, Split, Digits, Metaspace, Sequence)",
		spec.Type)
}

func (spec *preTokenizerSpec) patternSplit(path string, classes *classTable) (*patternSplit, error) {
	s := &patternSplit{classes: classes, invert: spec.Invert}
	switch spec.Behavior {
	case "Isolated":
		s.behavior = isolated
	case "Removed":
		s.behavior = removed
	case "MergedWithPrevious":
		s.behavior = mergedWithPrevious
	case "MergedWithNext":
		s.behavior = mergedWithNext
	case "Contiguous":
		s.behavior = contiguous
	default:
		return nil, field(path+".behavior", "%q is no split behavior", spec.Behavior)
	}
	if spec.Pattern.Regex != nil {
		alternatives, ok := matchersOf(*spec.Pattern.Regex)
		if !ok {
			return nil, field(path+".pattern.Regex", "the pattern %q is none of the known ones (GPT-2, Llama-3, Qwen2/3, "+
				"Qwen3.5, DeepSeek-V3, Tekken, o200k)", *spec.Pattern.Regex)
		}
		s.alternatives = alternatives
		return s, nil
	}
	text, err := spec.Pattern.literal(path + ".pattern")
	if err != nil {
		return nil, err
	}
	s.alternatives = []matcher{literal(text)}
	return s, nil
}

// prependScheme says where Metaspace puts its replacement in front.
type prependScheme uint8

const (
	prependAlways prependScheme = iota // every stretch between added tokens
	prependFirst                       // only the start of the text
	prependNever
)

// parseScheme reads prepend_scheme, or the add_prefix_space of older files.
func parseScheme(scheme string, addPrefixSpace *bool, path string) (prependScheme, error) {
	switch scheme {
	case "", "always":
		if !orDefault(addPrefixSpace, true) {
			return prependNever, nil
		}
		return prependAlways, nil
	case "first":
		return prependFirst, nil
	case "never":
		return prependNever, nil
	}
	return 0, field(path+".prepend_scheme", "%q is none of always, first, never", scheme)
}

// metaspaceSplit replaces spaces by a visible character and cuts in front of each.
type metaspaceSplit struct {
	replacement string
	prepend     prependScheme
	words       *patternSplit // nil: no cut
}

func (spec *preTokenizerSpec) metaspace(path string, classes *classTable) (*metaspaceSplit, error) {
	if utf8.RuneCountInString(spec.Replacement) != 1 {
		return nil, field(path+".replacement", "%q is not one character", spec.Replacement)
	}
	scheme, err := parseScheme(spec.PrependScheme, spec.AddPrefixSpace, path)
	if err != nil {
		return nil, err
	}
	m := &metaspaceSplit{replacement: spec.Replacement, prepend: scheme}
	if orDefault(spec.Split, true) {
		m.words = &patternSplit{
			classes: classes, alternatives: []matcher{literal(spec.Replacement)}, behavior: mergedWithNext,
		}
	}
	return m, nil
}

func (m *metaspaceSplit) split(p piece, next func(piece)) {
	p.text = strings.ReplaceAll(p.text, " ", m.replacement)
	wanted := m.prepend == prependAlways || m.prepend == prependFirst && p.first
	if wanted && p.text != "" && !strings.HasPrefix(p.text, m.replacement) {
		p.text = m.replacement + p.text
	}
	if m.words == nil {
		next(p)
		return
	}
	m.words.split(p, next)
}
