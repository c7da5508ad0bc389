package tokenizer

import (
	"cmp"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// decoder turns token texts into text by a chain of stages. The leading stages that look at
// one token at a time are done once per token when the tokenizer is loaded.
type decoder struct {
	feed   []string // by id: what the token puts into the chain
	stages []stage
}

// stage makes the sink of one decoding step in front of another.
type stage func(next sink) sink

// chain builds the sinks of one stream.
func (d *decoder) chain(out sink) sink {
	for i := len(d.stages) - 1; i >= 0; i-- {
		out = d.stages[i](out)
	}
	return out
}

type decoderSpec struct {
	Type           string            `json:"type"`
	Decoders       []json.RawMessage `json:"decoders"`
	Pattern        patternSpec       `json:"pattern"`
	Content        string            `json:"content"`
	Start          int               `json:"start"`
	Stop           int               `json:"stop"`
	Replacement    string            `json:"replacement"`
	PrependScheme  string            `json:"prepend_scheme"`
	AddPrefixSpace *bool             `json:"add_prefix_space"`
}

// decoderParser collects the stages of the decoder field of tokenizer.json.
type decoderParser struct {
	perToken []func(string) string
	stages   []stage
	fused    bool // the stages so far make one text of the tokens
}

func (p *decoderParser) parse(raw json.RawMessage, path string) error {
	var spec decoderSpec
	if err := decodeField(raw, path, &spec); err != nil {
		return err
	}
	switch spec.Type {
	case "Sequence":
		for i, raw := range spec.Decoders {
			if err := p.parse(raw, element(path+".decoders", i)); err != nil {
				return err
			}
		}
		return nil
	case "ByteLevel":
		if len(p.stages) > 0 {
			return field(path, "ByteLevel is supported only before decoders that join tokens")
		}
		alphabet := newByteAlphabet()
		p.perToken = append(p.perToken, func(token string) string {
			if b, ok := alphabet.decode(token); ok {
				return b
			}
			return token
		})
		p.stages = append(p.stages, newUTF8Sink)
		p.fused = true
		return nil
	case "Replace":
		return p.parseReplace(&spec, path)
	case "ByteFallback":
		if p.fused {
			return field(path, "ByteFallback is supported only before decoders that join tokens")
		}
		p.stages = append(p.stages, newByteFallbackSink)
		return nil
	case "Fuse":
		p.stages = append(p.stages, newFuseSink)
		p.fused = true
		return nil
	case "Strip":
		return p.parseStrip(&spec, path)
	case "Metaspace":
		if utf8.RuneCountInString(spec.Replacement) != 1 {
			return field(path+".replacement", "%q is not one character", spec.Replacement)
		}
		scheme, err := parseScheme(spec.PrependScheme, spec.AddPrefixSpace, path)
		if err != nil {
			return err
		}
		p.stages = append(p.stages, func(next sink) sink {
			return &metaspaceSink{next: next, replacement: spec.Replacement, dropping: scheme != prependNever}
		})
		return nil
	}
	return field(path+".type", "decoder %q is not supported (supported: ByteLevel, Replace, ByteFallback, Fuse, Strip, "+
		"Metaspace, Sequence)", spec.Type)
}

func (p *decoderParser) parseReplace(spec *decoderSpec, path string) error {
	from, err := spec.Pattern.literal(path + ".pattern")
	if err != nil {
		return err
	}
	if p.fused && utf8.RuneCountInString(from) > 1 {
		return field(path+".pattern", "replacing more than one character is supported only before decoders that join tokens")
	}
	replace := func(s string) string { return strings.ReplaceAll(s, from, spec.Content) }
	if len(p.stages) == 0 {
		p.perToken = append(p.perToken, replace)
		return nil
	}
	p.stages = append(p.stages, func(next sink) sink { return &mapSink{next: next, apply: replace} })
	return nil
}

func (p *decoderParser) parseStrip(spec *decoderSpec, path string) error {
	if utf8.RuneCountInString(spec.Content) != 1 {
		return field(path+".content", "%q is not one character", spec.Content)
	}
	if spec.Start < 0 || spec.Stop < 0 {
		return field(path, "start %d and stop %d must not be negative", spec.Start, spec.Stop)
	}
	p.stages = append(p.stages, func(next sink) sink {
		return &stripSink{next: next, content: spec.Content, start: spec.Start, stop: spec.Stop, left: spec.Start}
	})
	return nil
}

// parseDecoder reads the decoder field. Without one, tokens are joined by spaces.
func parseDecoder(raw json.RawMessage, vocabulary []vocabularyEntry) (*decoder, error) {
	var p decoderParser
	if absent(raw) {
		p.stages = []stage{newSpaceSink}
	} else if err := p.parse(raw, "decoder"); err != nil {
		return nil, err
	}
	d := &decoder{feed: make([]string, len(vocabulary)), stages: p.stages}
	for id := range vocabulary {
		text := cmp.Or(vocabulary[id].written, vocabulary[id].text)
		for _, apply := range p.perToken {
			text = apply(text)
		}
		d.feed[id] = text
	}
	return d, nil
}
