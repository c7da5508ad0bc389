package tokenizer

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strconv"
	"unicode"
)

const (
	// Ids above the ranks that are set aside for special tokens, named or not.
	tiktokenSpecials = 256

	// Kimi's own code cuts long texts before anything else, at these numbers of characters.
	maxTiktokenChunk = 400_000
	maxTiktokenRun   = 25_000 // without, or of nothing but, white space
)

// parseTiktoken makes Kimi's tokenizer of tiktoken.model and the special tokens of
// tokenizer_config.json, which are given by their ids in decimal.
func parseTiktoken(data []byte, special map[string]addedToken) (*Tokenizer, error) {
	ranks, err := parseRanks(data)
	if err != nil {
		return nil, inFile(err, fileTiktoken)
	}
	t := &Tokenizer{
		vocabulary:  make([]vocabularyEntry, len(ranks)+tiktokenSpecials),
		ids:         make(map[string]int32, len(ranks)+tiktokenSpecials),
		chunk:       chunkTiktoken,
		added:       &addedSet{},
		normalized:  &addedSet{},
		splitters:   []splitter{&patternSplit{classes: newClassTable(), alternatives: kimiMatchers()}},
		bos:         noToken,
		allOrdinary: true,
	}
	t.model = &bpe{
		tokens: ranks, joins: byteRanks(ranks), wholePiece: true, byteLevel: true, unknown: noToken, cache: newPieceCache(),
	}
	for text, id := range ranks {
		t.vocabulary[id] = vocabularyEntry{text: text, present: true}
		t.ids[text] = id
	}
	for b := range t.model.byteIDs {
		id, ok := ranks[string([]byte{byte(b)})]
		if !ok {
			return nil, &FormatError{fileTiktoken, "", fmt.Sprintf("byte 0x%02X has no token", b)}
		}
		t.model.byteIDs[b] = id
	}
	if err := t.setSpecials(int32(len(ranks)), special); err != nil {
		return nil, inFile(err, fileConfig)
	}
	t.decoder = &decoder{feed: make([]string, len(t.vocabulary)), stages: []stage{newUTF8Sink}}
	for id := range t.vocabulary {
		t.decoder.feed[id] = t.vocabulary[id].text
	}
	return t, nil
}

// parseRanks reads lines of a base64 token and its rank.
func parseRanks(data []byte) (map[string]int32, error) {
	ranks := make(map[string]int32, bytes.Count(data, []byte("\n"))+1)
	number := 0
	for line := range bytes.Lines(data) {
		number++
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		path := fmt.Sprintf("line %d", number)
		encoded, digits, ok := bytes.Cut(line, []byte(" "))
		if !ok {
			return nil, field(path, "expected a base64 token and its rank")
		}
		token := make([]byte, base64.StdEncoding.DecodedLen(len(encoded)))
		n, err := base64.StdEncoding.Decode(token, encoded)
		if err != nil || n == 0 {
			return nil, field(path, "%.40q is not a base64 token", encoded)
		}
		rank, err := strconv.ParseUint(string(digits), 10, 32)
		if err != nil || rank >= maxTokenID {
			return nil, field(path, "%.40q is not a rank below %d", digits, maxTokenID)
		}
		text := string(token[:n])
		if other, ok := ranks[text]; ok {
			return nil, field(path, "token %q has rank %d already", text, other)
		}
		ranks[text] = int32(rank)
	}
	return ranks, checkRanks(ranks)
}

// checkRanks makes sure that ranks are 0 to n-1, which decides where the special tokens start.
func checkRanks(ranks map[string]int32) error {
	seen := make([]bool, len(ranks))
	for text, rank := range ranks {
		if int(rank) >= len(ranks) {
			return field("", "token %q has rank %d among %d tokens, ranks must have no gaps", text, rank, len(ranks))
		}
		if seen[rank] {
			return field("", "rank %d is given to more than one token, %q is one", rank, text)
		}
		seen[rank] = true
	}
	return nil
}

// setSpecials names the ids after the ranks. Those of no name in the file are special and reserved.
func (t *Tokenizer) setSpecials(first int32, named map[string]addedToken) error {
	tokens := make([]addedToken, tiktokenSpecials)
	for key, tok := range named {
		path := "added_tokens_decoder." + key
		id, err := strconv.ParseInt(key, 10, 32)
		if err != nil || int32(id) < first || int32(id) >= first+tiktokenSpecials {
			return field(path, "expected an id between %d and %d", first, first+tiktokenSpecials-1)
		}
		if tok.Content == "" {
			return field(path, "content is empty")
		}
		tokens[int32(id)-first] = tok
	}
	for i := range tokens {
		tok := &tokens[i]
		tok.ID = first + int32(i)
		if tok.Content == "" {
			tok.Content = fmt.Sprintf("<|reserved_token_%d|>", tok.ID)
			tok.Special = true
		}
		if id, ok := t.ids[tok.Content]; ok && id >= first {
			return field(fmt.Sprintf("added_tokens_decoder.%d", tok.ID), "%q has id %d already", tok.Content, id)
		}
		// tiktoken knows no stripping and no word boundaries.
		tok.LStrip, tok.RStrip, tok.SingleWord = false, false, false
		t.vocabulary[tok.ID] = vocabularyEntry{text: tok.Content, present: true, special: tok.Special}
		t.ids[tok.Content] = tok.ID
		t.added.insert(tok.Content, tok)
	}
	return nil
}

// chunkTiktoken cuts every maxTiktokenChunk characters and, within, in runs of more than
// maxTiktokenRun characters without or of only white space.
func chunkTiktoken(text string, visit func(string)) {
	if len(text) <= maxTiktokenRun {
		visit(text)
		return
	}
	start, chars, run := 0, 0, 0
	inSpace := false
	for i, r := range text {
		isSpace := isPythonSpace(r)
		switch {
		case chars == maxTiktokenChunk:
			visit(text[start:i])
			start, chars, run = i, 0, 1
		case chars > 0 && isSpace == inSpace:
			if run++; run > maxTiktokenRun {
				visit(text[start:i])
				start, run = i, 1
			}
		default:
			run = 1
		}
		inSpace = isSpace
		chars++
	}
	visit(text[start:])
}

// isPythonSpace is str.isspace of one character.
func isPythonSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1C && r <= 0x1F }
