package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// tokenizerFile is tokenizer.json.
type tokenizerFile struct {
	AddedTokens   []addedToken    `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         modelSpec       `json:"model"`
}

type modelSpec struct {
	Type          string           `json:"type"` // absent in old files
	Vocab         map[string]int32 `json:"vocab"`
	Merges        mergeTexts       `json:"merges"`
	UnkToken      *string          `json:"unk_token"`
	SubwordPrefix *string          `json:"continuing_subword_prefix"`
	EndOfWord     *string          `json:"end_of_word_suffix"`
	Dropout       *float64         `json:"dropout"`
	FuseUnk       bool             `json:"fuse_unk"`
	ByteFallback  bool             `json:"byte_fallback"`
	IgnoreMerges  bool             `json:"ignore_merges"`
}

// mergeTexts are pairs of tokens, written "a b" or ["a", "b"].
type mergeTexts [][2]string

func (m *mergeTexts) UnmarshalJSON(data []byte) error {
	if rest := bytes.TrimLeft(bytes.TrimPrefix(data, []byte("[")), " \t\r\n"); len(rest) > 0 && rest[0] != '"' {
		return json.Unmarshal(data, (*[][2]string)(m))
	}
	var lines []string
	if err := json.Unmarshal(data, &lines); err != nil {
		return err
	}
	*m = make(mergeTexts, len(lines))
	for i, line := range lines {
		left, right, ok := strings.Cut(line, " ")
		if !ok || strings.Contains(right, " ") {
			return fmt.Errorf("merge %d is %q, not two tokens with one space between", i, line)
		}
		(*m)[i] = [2]string{left, right}
	}
	return nil
}

func parseTokenizerJSON(data []byte) (*Tokenizer, error) {
	var file tokenizerFile
	if err := decodeField(data, "", &file); err != nil {
		if other := otherModel(data); other != nil {
			return nil, other
		}
		return nil, err
	}
	if err := file.Model.validate(); err != nil {
		return nil, err
	}
	t := &Tokenizer{added: &addedSet{}, normalized: &addedSet{}, bos: noToken}
	if err := t.setVocabulary(&file); err != nil {
		return nil, err
	}
	var err error
	if t.normalize, err = parseNormalizer(file.Normalizer, "normalizer"); err != nil {
		return nil, err
	}
	t.setAdded(file.AddedTokens)
	var pre preTokenizer
	if err := pre.parse(file.PreTokenizer, "pre_tokenizer", newClassTable()); err != nil {
		return nil, err
	}
	t.splitters = pre.splitters
	if t.model, err = newModel(&file.Model, pre.byteLevel); err != nil {
		return nil, err
	}
	if err := t.post.parse(file.PostProcessor, "post_processor"); err != nil {
		return nil, err
	}
	for _, id := range slices.Concat(t.post.before, t.post.after) {
		if _, ok := t.IDToken(id); !ok {
			return nil, field("post_processor", "token id %d is not in the vocabulary", id)
		}
	}
	t.decoder, err = parseDecoder(file.Decoder, t.vocabulary)
	return t, err
}

// otherModel says so when the file is of a model that is not BPE, whose fields
// have other types.
func otherModel(data []byte) error {
	var file struct {
		Model struct {
			Type string `json:"type"`
		} `json:"model"`
	}
	if json.Unmarshal(data, &file) != nil || file.Model.Type == "" {
		return nil
	}
	spec := modelSpec{Type: file.Model.Type}
	return spec.validateType()
}

func (m *modelSpec) validateType() error {
	if m.Type != "BPE" && m.Type != "" {
		return field("model.type", "%q is not supported, only BPE", m.Type)
	}
	return nil
}

func (m *modelSpec) validate() error {
	if err := m.validateType(); err != nil {
		return err
	}
	if len(m.Vocab) == 0 {
		return field("model.vocab", "is missing or empty")
	}
	if m.SubwordPrefix != nil && *m.SubwordPrefix != "" {
		return field("model.continuing_subword_prefix", "%q is not supported, only none", *m.SubwordPrefix)
	}
	if m.EndOfWord != nil && *m.EndOfWord != "" {
		return field("model.end_of_word_suffix", "%q is not supported, only none", *m.EndOfWord)
	}
	if m.Dropout != nil && *m.Dropout != 0 {
		return field("model.dropout", "%v makes encoding random, only 0 is supported", *m.Dropout)
	}
	if m.UnkToken != nil {
		if _, ok := m.Vocab[*m.UnkToken]; !ok {
			return field("model.unk_token", "%q is not in the vocabulary", *m.UnkToken)
		}
	}
	return nil
}

// setVocabulary fills the tables by id and by text.
func (t *Tokenizer) setVocabulary(file *tokenizerFile) error {
	size := 0
	for text, id := range file.Model.Vocab {
		if err := checkID(id); err != nil {
			return field(fmt.Sprintf("model.vocab[%q]", text), "%v", err)
		}
		size = max(size, int(id)+1)
	}
	for i, tok := range file.AddedTokens {
		if err := checkID(tok.ID); err != nil {
			return field(element("added_tokens", i), "%v", err)
		}
		size = max(size, int(tok.ID)+1)
	}
	t.vocabulary = make([]vocabularyEntry, size)
	t.ids = make(map[string]int32, size)
	for text, id := range file.Model.Vocab {
		entry := &t.vocabulary[id]
		if entry.present {
			return field("model.vocab", "id %d is given to both %q and %q", id, min(text, entry.text), max(text, entry.text))
		}
		*entry = vocabularyEntry{text: text, present: true}
		t.ids[text] = id
	}
	for i, tok := range file.AddedTokens {
		if tok.Content == "" {
			continue
		}
		if id, ok := t.ids[tok.Content]; ok && id != tok.ID {
			return field(element("added_tokens", i), "%q has id %d here and %d before", tok.Content, tok.ID, id)
		}
		entry := &t.vocabulary[tok.ID]
		if entry.present && entry.text != tok.Content {
			return field(element("added_tokens", i), "id %d of %q is already that of %q", tok.ID, tok.Content, entry.text)
		}
		*entry = vocabularyEntry{text: tok.Content, present: true, special: entry.special || tok.Special}
		t.ids[tok.Content] = tok.ID
	}
	return nil
}

func checkID(id int32) error {
	if id < 0 || id >= maxTokenID {
		return fmt.Errorf("token id %d is not between 0 and %d", id, maxTokenID-1)
	}
	return nil
}

// setAdded prepares the search for added tokens, those to be found in normalised text in
// their normalised form.
func (t *Tokenizer) setAdded(tokens []addedToken) {
	for i := range tokens {
		tok := &tokens[i]
		switch {
		case !tok.Normalized:
			t.added.insert(tok.Content, tok)
		case t.normalize == nil:
			t.normalized.insert(tok.Content, tok)
		default:
			// The reference decodes such a token to its normalised form too.
			form := t.normalize(tok.Content)
			t.normalized.insert(form, tok)
			t.vocabulary[tok.ID].written = form
		}
	}
}

func newModel(spec *modelSpec, byteLevel bool) (*bpe, error) {
	m := &bpe{
		wholePiece:   spec.IgnoreMerges,
		byteLevel:    byteLevel,
		byteFallback: spec.ByteFallback,
		unknown:      noToken,
		fuseUnknown:  spec.FuseUnk,
		tokens:       spec.Vocab,
		cache:        newPieceCache(),
	}
	if spec.UnkToken != nil {
		m.unknown = spec.Vocab[*spec.UnkToken]
	}
	alphabet := newByteAlphabet()
	for b := range m.byteIDs {
		name := byteToken(byte(b))
		if byteLevel {
			name = string(alphabet.char[b])
		}
		m.byteIDs[b] = noToken
		if id, ok := spec.Vocab[name]; ok {
			m.byteIDs[b] = id
		}
	}
	if byteLevel {
		m.tokens = make(map[string]int32, len(spec.Vocab))
		for text, id := range spec.Vocab {
			if b, ok := alphabet.decode(text); ok {
				m.tokens[b] = id
			}
		}
	}
	merges, err := newMergeList(spec)
	m.joins = merges
	if !byteLevel {
		m.cuts = newCutter(m, spec.Merges)
	}
	return m, err
}

func newMergeList(spec *modelSpec) (mergeList, error) {
	list := make(mergeList, len(spec.Merges))
	for rank, pair := range spec.Merges {
		var ids [3]int32
		for i, text := range [3]string{pair[0], pair[1], pair[0] + pair[1]} {
			id, ok := spec.Vocab[text]
			if !ok {
				return nil, field(element("model.merges", rank), "token %q is not in the vocabulary", text)
			}
			ids[i] = id
		}
		list[pairKey(ids[0], ids[1])] = pairRank{rank: uint32(rank), into: ids[2]}
	}
	return list, nil
}
