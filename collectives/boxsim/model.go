package boxsim

import "math"

// Model is what a decode pass reads, in bytes. A split part is cut over the ranks;
// a whole one is read by each.
type Model struct {
	Name   string
	Layers int
	Hidden int

	Split float64 // weights that every pass reads
	Whole float64

	Experts      int // 0 for a dense model
	TopK         int
	SparseLayers int
	Expert       float64 // one routed expert of one layer, split

	CacheSplit float64 // of one position, all layers
	CacheWhole float64
}

// AllReduces is how many a pass has: after attention and after the MLP.
func (m *Model) AllReduces() int { return 2 * m.Layers }

// Distinct is the expected number of routed experts that so many tokens need in a
// layer, if routing is uniform: E (1 - (1 - k/E)^T). Real routing is not; alike
// tokens need fewer.
func (m *Model) Distinct(tokens int) float64 {
	if m.Experts == 0 {
		return 0
	}
	e, k := float64(m.Experts), float64(m.TopK)
	return e * (1 - math.Pow(1-k/e, float64(tokens)))
}

// PassBytes is what each rank reads in a pass over so many tokens of one sequence
// with a committed context.
func (m *Model) PassBytes(tokens, context, ranks int) float64 {
	split := m.Split + m.CacheSplit*float64(context)
	split += m.Distinct(tokens) * float64(m.SparseLayers) * m.Expert
	return split/float64(ranks) + m.Whole + m.CacheWhole*float64(context)
}

// PayloadBytes is what an all-reduce of so many tokens reduces.
func (m *Model) PayloadBytes(tokens, valueBytes int) int { return tokens * m.Hidden * valueBytes }
