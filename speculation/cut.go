package speculation

import "slices"

// Finish is why a sequence ended.
type Finish uint8

// The ends that the tokens themselves can bring.
const (
	NotFinished  Finish = iota
	FinishStop          // a stop token
	FinishLength        // the limit of tokens
)

// Cut says how many tokens of a run are kept and whether the sequence ends with
// them: at the first stop token, which is kept, or when room tokens are there.
// Whichever comes first in the run wins; a stop token in the last place that
// there is room for is a stop.
func Cut(run []int32, stop []int32, room int) (keep int, finish Finish) {
	for i, token := range run {
		if i == room {
			break
		}
		if slices.Contains(stop, token) {
			return i + 1, FinishStop
		}
	}
	if len(run) >= room {
		return max(room, 0), FinishLength
	}
	return len(run), NotFinished
}
