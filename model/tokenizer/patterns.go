package tokenizer

import "strings"

// The patterns of published tokenizers, as their files write them. A raw carriage return or line feed
// in a file's pattern counts as \r or \n.
const (
	contractionText = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	spacesText      = `\s*[\r\n]+|\s+(?!\S)|\s+`
	upperText       = `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`
	lowerText       = `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`
	leadText        = `[^\r\n\p{L}\p{N}]?`

	patternGPT2   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	patternLlama3 = contractionText + `|` + leadText + `\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|` + spacesText
	patternQwen2  = contractionText + `|` + leadText + `\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|` + spacesText
	patternQwen35 = contractionText + `|` + leadText + `[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|` + spacesText
	patternTekken = leadText + upperText + `*` + lowerText + `+|` + leadText + upperText + `+` + lowerText +
		`*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|` + spacesText
	patternO200k = leadText + upperText + `*` + lowerText + `+` + contractionText + `?|` +
		leadText + upperText + `+` + lowerText + `*` + contractionText +
		`?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|` + spacesText

	patternThreeDigits  = `\p{N}{1,3}`
	patternKanaHan      = `[一-龥぀-ゟ゠-ヿ]+`
	patternDeepSeekMain = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|" +
		`[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|` + spacesText
)

// matchersOf returns the alternatives of a known pattern, and false for any other text.
func matchersOf(pattern string) ([]matcher, bool) {
	pattern = strings.NewReplacer("\r", `\r`, "\n", `\n`).Replace(pattern)
	const (
		spaceLetterNumber = space | letter | number
		lineLetterNumber  = newline | letter | number
	)
	switch pattern {
	case patternGPT2:
		return []matcher{
			lowerContraction, spaced(letter), spaced(number), others(spaceLetterNumber, 0), spaceBeforeLast, in(space),
		}, true
	case patternLlama3:
		return spaces(contraction, word(lineLetterNumber, letter), upTo(3, number), others(spaceLetterNumber, newline)), true
	case patternQwen2:
		return spaces(contraction, word(lineLetterNumber, letter), upTo(1, number), others(spaceLetterNumber, newline)), true
	case patternQwen35:
		return spaces(contraction, word(lineLetterNumber, letter|mark), upTo(1, number),
			others(spaceLetterNumber|mark, newline)), true
	case patternTekken:
		w := casedWord{}
		return spaces(w.lowerEnding, w.upperStarting, upTo(1, number), others(spaceLetterNumber, newline|slash)), true
	case patternO200k:
		w := casedWord{contractions: true}
		return spaces(w.lowerEnding, w.upperStarting, upTo(3, number), others(spaceLetterNumber, newline|slash)), true
	case patternThreeDigits:
		return []matcher{upTo(3, number)}, true
	case patternKanaHan:
		return []matcher{in(kanaHan)}, true
	case patternDeepSeekMain:
		return spaces(asciiPunctWord, word(newline|letter|punct|symbolic, letter|mark), marks(punct|symbolic, newline)), true
	}
	return nil, false
}

// kimiMatchers are the alternatives of the pattern that Kimi's tokenizer code
// carries; tiktoken.model does not name it.
func kimiMatchers() []matcher {
	w := casedWord{except: han, contractions: true}
	return spaces(in(han), w.lowerEnding, w.upperStarting, upTo(3, number), others(space|letter|number, newline))
}

// spaces appends the alternatives for white space that end most patterns.
func spaces(alternatives ...matcher) []matcher {
	return append(alternatives, spaceLines, spaceBeforeLast, in(space))
}
