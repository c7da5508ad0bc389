package collectives

import "math"

// direction tells the two patterns of a probe apart.
type direction uint32

const (
	pushed direction = iota
	pulled
)

// The ways in which a path can be wrong, as they travel between ranks.
const (
	pathGood = iota
	pathLost
	pathWrong
)

const (
	lostText  = "data that was written did not arrive"
	wrongText = "data arrived with other values than were written"
)

func refusalCode(text string) float32 {
	switch text {
	case "":
		return pathGood
	case lostText:
		return pathLost
	}
	return pathWrong
}

func refusalText(code float32) string {
	switch code {
	case pathGood:
		return ""
	case pathLost:
		return lostText
	}
	return wrongText
}

// patternAt is element i of what one rank sends to another: no two elements,
// pairs or directions have the same.
func patternAt(i, from, to int, d direction) uint32 {
	x := uint32(i) | uint32(from)<<26 | uint32(to)<<29 | uint32(d)<<25
	x *= 0x9e3779b1
	x ^= x >> 15
	return x * 0x85ebca6b
}

func fillPattern(mem []float32, from, to int, d direction) {
	for i := range mem {
		mem[i] = math.Float32frombits(patternAt(i, from, to, d))
	}
}

// checkPattern says what is wrong with a pattern that arrived, or nothing.
func checkPattern(mem []float32, from, to int, d direction) string {
	poisoned := math.Float32bits(poison)
	for i, v := range mem {
		if got := math.Float32bits(v); got != patternAt(i, from, to, d) {
			if got == poisoned {
				return lostText
			}
			return wrongText
		}
	}
	return ""
}
