package speculation

import "slices"

// Workspace is scratch for the Samplers of one thread. The zero value is ready.
type Workspace struct {
	logits  []float32 // [vocab] processed logits
	weights []float64 // [vocab] exp(logit - largest) by token
	ids     []int32   // [vocab] candidate tokens
}

func (w *Workspace) reserve(vocab int) {
	if len(w.logits) < vocab {
		w.logits = make([]float32, vocab)
		w.weights = make([]float64, vocab)
		w.ids = make([]int32, vocab)
	}
}

// every returns ids as the candidates 0..vocab-1.
func (w *Workspace) every(vocab int) []int32 {
	ids := w.ids[:vocab]
	for i := range ids {
		ids[i] = int32(i)
	}
	return ids
}

// above orders tokens: the larger logit first, the lower token on ties.
func above(logits []float32, a, b int32) bool {
	if logits[a] != logits[b] {
		return logits[a] > logits[b]
	}
	return a < b
}

// selectTop brings the n first tokens of ids, in the order of above, to the front
// and sorts them. ids must hold distinct tokens.
func selectTop(logits []float32, ids []int32, n int) []int32 {
	low, high := 0, len(ids)
	for n < high && high-low > 16 {
		middle := partition(logits, ids, low, high)
		switch {
		case middle == n:
			low, high = n, n
		case middle > n:
			high = middle
		default:
			low = middle + 1
		}
	}
	if low < high {
		sortTokens(logits, ids[low:high])
	}
	top := ids[:min(n, len(ids))]
	sortTokens(logits, top)
	return top
}

// partition splits ids[low:high] about a pivot and returns where the pivot went.
func partition(logits []float32, ids []int32, low, high int) int {
	middle, last := low+(high-low)/2, high-1
	// The median of three is the pivot; it waits in the last place.
	if above(logits, ids[middle], ids[low]) {
		ids[middle], ids[low] = ids[low], ids[middle]
	}
	if above(logits, ids[last], ids[low]) {
		ids[last], ids[low] = ids[low], ids[last]
	}
	if above(logits, ids[middle], ids[last]) {
		ids[middle], ids[last] = ids[last], ids[middle]
	}
	pivot, place := ids[last], low
	for i := low; i < last; i++ {
		if above(logits, ids[i], pivot) {
			ids[i], ids[place] = ids[place], ids[i]
			place++
		}
	}
	ids[place], ids[last] = ids[last], ids[place]
	return place
}

func sortTokens(logits []float32, ids []int32) {
	slices.SortFunc(ids, func(a, b int32) int {
		switch {
		case a == b:
			return 0
		case above(logits, a, b):
			return -1
		}
		return 1
	})
}
