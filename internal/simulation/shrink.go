package simulation

import (
	"slices"

	"github.com/octet-run/octet/faults"
)

// Shrink returns a shortest part of a script that still fails: no fault can be
// taken out of it (delta debugging, A. Zeller, 1999). fails is called with parts of
// the script, never with an empty one unless that is what is left.
func Shrink(script []faults.Fault, fails func([]faults.Fault) bool) []faults.Fault {
	for parts := 2; len(script) > 0; {
		parts = min(parts, len(script))
		smaller := false
		for i := range parts {
			lo, hi := i*len(script)/parts, (i+1)*len(script)/parts
			rest := slices.Concat(script[:lo], script[hi:])
			if fails(rest) {
				script, smaller = rest, true
				break
			}
		}
		switch {
		case smaller:
			parts = max(parts-1, 2)
		case parts == len(script):
			return script
		default:
			parts *= 2
		}
	}
	return script
}
