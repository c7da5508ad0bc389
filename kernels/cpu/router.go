package cpu

import (
	"math"
	"unsafe"

	"github.com/octet-run/octet/kernels"
)

// Route fills ids and weights from router logits. Softmax routing takes the
// largest probabilities; sigmoid routing (DeepSeek-V3) takes the largest biased
// scores of the best groups and weighs by the unbiased ones. The lower index
// wins ties.
func (b *Backend) Route(ids, weights, logits kernels.Tensor, r kernels.Router) {
	groups := max(r.Groups, 1)
	if logits.Cols != r.Experts || ids.Cols != r.TopK || weights.Cols != r.TopK || r.TopK > r.Experts ||
		ids.Rows != logits.Rows || weights.Rows != logits.Rows || r.Experts%groups != 0 {
		b.misfit("Route", "logits [%d, %d], ids [%d, %d], weights [%d, %d] for %d of %d experts in %d groups", logits.Rows, logits.Cols,
			ids.Rows, ids.Cols, weights.Rows, weights.Cols, r.TopK, r.Experts, groups)
		return
	}
	b.work.reset()
	p, err := b.work.take((2*r.Experts + groups) * 4)
	if err != nil {
		b.fail(err)
		return
	}
	buf := unsafe.Slice((*float32)(p), 2*r.Experts+groups)
	c := choice{
		routines: b.routines,
		scores:   buf[:r.Experts],
		biased:   buf[r.Experts : 2*r.Experts],
		groups:   buf[2*r.Experts:][:groups],
	}
	for t := range logits.Rows {
		c.route(ids.I32Row(t), weights.F32Row(t), logits.F32Row(t), r)
	}
}

// choice is the working memory of routing one row.
type choice struct {
	*routines
	scores []float32 // what weighs
	biased []float32 // what is chosen by; -Inf is out of reach
	groups []float32 // score of each group
}

func (c *choice) route(ids []int32, weights, logits []float32, r kernels.Router) {
	if r.Sigmoid {
		for e, v := range logits {
			c.scores[e] = float32(1 / (1 + math.Exp(-float64(v))))
		}
	} else {
		c.softmax(logits)
	}
	copy(c.biased, c.scores)
	if !r.Bias.Empty() {
		for e := range c.biased {
			c.biased[e] += loadF32(r.Bias, 0, e)
		}
	}
	if len(c.groups) > 1 && r.TopGroups < len(c.groups) {
		c.closeGroups(r.TopGroups)
	}
	c.topK(weights, ids, c.biased)
	var sum float32
	for i, e := range ids {
		// A row of NaN chooses nothing; expert 0 with weight NaN shows it downstream.
		weights[i] = c.scores[max(e, 0)]
		ids[i] = max(e, 0)
		sum += weights[i]
	}
	scale := r.Scale
	if scale == 0 {
		scale = 1
	}
	for i := range weights {
		if r.Normalize {
			weights[i] /= sum + 1e-20
		}
		weights[i] *= scale
	}
}

// closeGroups puts all but the best keep groups out of reach. A group's score
// is the sum of its two best.
func (c *choice) closeGroups(keep int) {
	size, negInf := len(c.biased)/len(c.groups), float32(math.Inf(-1))
	for g := range c.groups {
		best, second := negInf, negInf
		for _, v := range c.biased[g*size : (g+1)*size] {
			if v > best {
				best, second = v, best
			} else if v > second {
				second = v
			}
		}
		if size == 1 {
			second = 0
		}
		c.groups[g] = best + second
	}
	for g, score := range c.groups {
		better := 0
		for h, other := range c.groups {
			if other > score || other == score && h < g {
				better++
			}
		}
		if better >= keep {
			for e := g * size; e < (g+1)*size; e++ {
				c.biased[e] = negInf
			}
		}
	}
}

// softmax is computed in float64: routers are small, and near ties matter.
func (c *choice) softmax(x []float32) {
	m := float64(c.max(x))
	var sum float64
	for _, v := range x {
		sum += math.Exp(float64(v) - m)
	}
	for i, v := range x {
		c.scores[i] = float32(math.Exp(float64(v)-m) / sum)
	}
}
