package tokenizer

import "encoding/json"

// postProcessor puts fixed tokens around the tokens of a text.
type postProcessor struct {
	before, after []int32
}

// wrap sets the tokens. The reference gives the second of two templates the tokens of
// the first as if they were a text of their own.
func (p *postProcessor) wrap(before, after []int32, path string) error {
	if len(p.before)+len(p.after) > 0 {
		return field(path, "tokens are put around a text twice, which is supported once")
	}
	p.before, p.after = before, after
	return nil
}

type templatePart struct {
	SpecialToken *struct {
		ID string `json:"id"`
	} `json:"SpecialToken"`
	Sequence *struct {
		ID string `json:"id"`
	} `json:"Sequence"`
}

type postSpec struct {
	Type          string            `json:"type"`
	Processors    []json.RawMessage `json:"processors"`
	Single        []templatePart    `json:"single"`
	SpecialTokens map[string]struct {
		IDs []int32 `json:"ids"`
	} `json:"special_tokens"`
	Sep namedToken `json:"sep"`
	CLS namedToken `json:"cls"`
}

// namedToken is ["text", id].
type namedToken struct{ id int32 }

func (n *namedToken) UnmarshalJSON(data []byte) error {
	var text string
	return json.Unmarshal(data, &[]any{&text, &n.id})
}

// parse adds what the post_processor field of tokenizer.json adds to a single text.
func (p *postProcessor) parse(raw json.RawMessage, path string) error {
	if absent(raw) {
		return nil
	}
	var spec postSpec
	if err := decodeField(raw, path, &spec); err != nil {
		return err
	}
	switch spec.Type {
	case "ByteLevel": // it only moves offsets
		return nil
	case "Sequence":
		for i, raw := range spec.Processors {
			if err := p.parse(raw, element(path+".processors", i)); err != nil {
				return err
			}
		}
		return nil
	case "TemplateProcessing":
		return p.parseTemplate(&spec, path)
	case "BertProcessing", "RobertaProcessing":
		return p.wrap([]int32{spec.CLS.id}, []int32{spec.Sep.id}, path)
	}
	return field(path+".type", "post-processor %q is not supported (supported: ByteLevel, TemplateProcessing, "+
		"BertProcessing, RobertaProcessing, Sequence)", spec.Type)
}

func (p *postProcessor) parseTemplate(spec *postSpec, path string) error {
	var before, after []int32
	seen := false
	for i, part := range spec.Single {
		switch {
		case part.Sequence != nil && part.Sequence.ID == "A" && !seen:
			seen = true
		case part.SpecialToken != nil:
			token, ok := spec.SpecialTokens[part.SpecialToken.ID]
			if !ok {
				return field(element(path+".single", i), "special token %q has no entry in special_tokens", part.SpecialToken.ID)
			}
			if seen {
				after = append(after, token.IDs...)
			} else {
				before = append(before, token.IDs...)
			}
		default:
			return field(element(path+".single", i), "expected a SpecialToken or, once, the Sequence A")
		}
	}
	if !seen {
		return field(path+".single", "the Sequence A is missing")
	}
	return p.wrap(before, after, path)
}
