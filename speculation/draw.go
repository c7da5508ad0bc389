package speculation

import "math"

// largest returns the token with the largest logit, the lower one on ties.
func largest(logits []float32) int32 {
	best := 0
	for token, logit := range logits {
		if logit > logits[best] {
			best = token
		}
	}
	return int32(best)
}

// draw picks a token from the distribution that temperature, top-k, top-p and
// min-p leave of logits, at the coin u in [0, 1).
func draw(p *Params, w *Workspace, logits []float32, u float64) int32 {
	ids := w.every(len(logits))
	sorted := false
	if p.TopK > 0 && int(p.TopK) < len(ids) {
		ids, sorted = selectTop(logits, ids, int(p.TopK)), true
	}
	total := weigh(p.Temperature, w.weights, logits, ids)
	if p.TopP > 0 && p.TopP < 1 {
		ids, total = nucleus(w.weights, logits, ids, float64(p.TopP)*total, sorted)
	}
	if p.MinP > 0 {
		ids, total = atLeast(w.weights, ids, float64(p.MinP))
	}
	return pick(w.weights, ids, u*total)
}

// weigh fills weights[id] = exp((logit - largest) / temperature) and returns the sum.
func weigh(temperature float32, weights []float64, logits []float32, ids []int32) float64 {
	top := logits[ids[0]]
	for _, id := range ids {
		top = max(top, logits[id])
	}
	total := 0.0
	for _, id := range ids {
		weight := math.Exp(float64(logits[id]-top) / float64(temperature))
		weights[id] = weight
		total += weight
	}
	return total
}

// nucleus keeps the likeliest tokens up to and including the one with which
// their weight reaches mass.
func nucleus(weights []float64, logits []float32, ids []int32, mass float64, sorted bool) ([]int32, float64) {
	const firstGuess, growth = 256, 8
	guess := firstGuess
	if sorted {
		guess = len(ids)
	}
	for {
		top := ids
		if !sorted {
			top = selectTop(logits, ids, guess)
		}
		kept := 0.0
		for i, id := range top {
			kept += weights[id]
			if kept >= mass {
				return top[:i+1], kept
			}
		}
		if len(top) == len(ids) {
			return top, kept // rounding kept the whole below its own mass
		}
		guess *= growth
	}
}

// atLeast keeps the tokens whose weight is at least minP times the likeliest
// one's, which is 1.
func atLeast(weights []float64, ids []int32, minP float64) ([]int32, float64) {
	kept, total := ids[:0], 0.0
	for _, id := range ids {
		if weights[id] >= minP {
			kept = append(kept, id)
			total += weights[id]
		}
	}
	return kept, total
}

// pick walks the weights in order up to the point that the coin chose.
func pick(weights []float64, ids []int32, point float64) int32 {
	last := ids[0]
	for _, id := range ids {
		if weights[id] == 0 {
			continue
		}
		last = id
		if point -= weights[id]; point < 0 {
			return id
		}
	}
	return last // rounding left a little beyond the last token
}
