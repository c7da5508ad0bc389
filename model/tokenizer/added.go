package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// addedToken is a token that is cut out of the text before the model sees it.
type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"` // not inside a word
	LStrip     bool   `json:"lstrip"`      // takes the white space before it along
	RStrip     bool   `json:"rstrip"`      // takes the white space after it along
	Normalized bool   `json:"normalized"`  // looked for after normalisation
	Special    bool   `json:"special"`     // carries structure, not text
}

// addedSet finds added tokens in a text: the leftmost, and of those the longest.
type addedSet struct {
	root [256]*trieNode
}

type trieNode struct {
	children map[byte]*trieNode
	token    *addedToken // ends here, or nil
}

// insert makes the set find tok where text stands.
func (a *addedSet) insert(text string, tok *addedToken) {
	if text == "" {
		return
	}
	node := a.root[text[0]]
	if node == nil {
		node = &trieNode{}
		a.root[text[0]] = node
	}
	for i := 1; i < len(text); i++ {
		child := node.children[text[i]]
		if child == nil {
			child = &trieNode{}
			if node.children == nil {
				node.children = map[byte]*trieNode{}
			}
			node.children[text[i]] = child
		}
		node = child
	}
	node.token = tok
}

// find returns the first match at or after byte from; nil when there is none.
func (a *addedSet) find(s string, from int) (start, end int, tok *addedToken) {
	for start = from; start < len(s); start++ {
		node := a.root[s[start]]
		for i := start + 1; node != nil; i++ {
			if node.token != nil {
				end, tok = i, node.token
			}
			if i == len(s) {
				break
			}
			node = node.children[s[i]]
		}
		if tok != nil {
			return start, end, tok
		}
	}
	return len(s), len(s), nil
}

// cut visits the added tokens of s and the text between them, in order. Special tokens
// are left in the text when ordinary.
func (a *addedSet) cut(s string, ordinary bool, visit func(start, end int, tok *addedToken)) {
	done := 0
	for from := 0; ; {
		start, end, tok := a.find(s, from)
		if tok == nil {
			break
		}
		from = end
		if ordinary && tok.Special || tok.SingleWord && !standsAlone(s, start, end) {
			continue
		}
		if tok.LStrip {
			start = len(strings.TrimRightFunc(s[:start], unicode.IsSpace))
		}
		if tok.RStrip {
			end = len(s) - len(strings.TrimLeftFunc(s[end:], unicode.IsSpace))
		}
		start = max(start, done) // the token before may have taken these spaces
		if done < start {
			visit(done, start, nil)
		}
		visit(start, end, tok)
		done = max(done, end)
	}
	if done < len(s) {
		visit(done, len(s), nil)
	}
}

func standsAlone(s string, start, end int) bool {
	before, _ := utf8.DecodeLastRuneInString(s[:start])
	after, _ := utf8.DecodeRuneInString(s[end:])
	return (start == 0 || !isWord(before)) && (end == len(s) || !isWord(after))
}

// isWord is \w: alphabetic, mark, decimal digit, connector or join control.
func isWord(r rune) bool {
	return unicode.In(r, unicode.L, unicode.Nl, unicode.Other_Alphabetic, unicode.M, unicode.Nd, unicode.Pc,
		unicode.Join_Control)
}
