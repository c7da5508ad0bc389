package modeltest

import (
	"fmt"
	"math"
	"sort"

	"github.com/octet-run/octet/model"
)

// attention is the whole attention of a layer over normed rows.
func (o *Oracle) attention(layer int, name string, x [][]float64) [][]float64 {
	q, k, v, scale := o.grouped(name, x)
	if o.c.Latent != nil {
		q, k, v, scale = o.latent(name, x)
	}
	window := o.c.Attention.Window(layer)
	mixed := make([][]float64, len(x))
	for t := range x {
		for h := range q[t] {
			kv := h * len(k[t]) / len(q[t])
			first := 0
			if window > 0 {
				first = max(0, t-window+1)
			}
			scores := make([]float64, 0, t+1)
			for s := first; s <= t; s++ {
				scores = append(scores, scale*dot(q[t][h], k[s][kv]))
			}
			softmax(scores)
			out := make([]float64, len(v[t][kv]))
			for i, p := range scores {
				for j, value := range v[first+i][kv] {
					out[j] += p * value
				}
			}
			mixed[t] = append(mixed[t], out...)
		}
	}
	return o.linear(name+"o_proj", mixed)
}

// heads cuts rows into heads: [rows][heads][dim].
func heads(x [][]float64, dim int) [][][]float64 {
	out := make([][][]float64, len(x))
	for t, row := range x {
		for h := 0; h < len(row); h += dim {
			out[t] = append(out[t], row[h:h+dim])
		}
	}
	return out
}

func (o *Oracle) grouped(name string, x [][]float64) (q, k, v [][][]float64, scale float64) {
	if o.c.Latent != nil {
		return nil, nil, nil, 0
	}
	dim := o.c.Attention.HeadDim
	q, k, v = heads(o.linear(name+"q_proj", x), dim), heads(o.linear(name+"k_proj", x), dim), heads(o.linear(name+"v_proj", x), dim)
	for t := range x {
		o.finishHeads(q[t], name+"q_norm.weight", t)
		o.finishHeads(k[t], name+"k_norm.weight", t)
	}
	return q, k, v, 1 / math.Sqrt(float64(dim))
}

func (o *Oracle) finishHeads(hs [][]float64, norm string, position int) {
	for i := range hs {
		if o.c.Attention.QKNorm {
			hs[i] = rms(hs[i], o.tensor(norm).data, float64(o.c.NormEps))
		}
		o.rotate(hs[i], position)
	}
}

// latent expands keys and values, as the published models define it.
func (o *Oracle) latent(name string, x [][]float64) (q, k, v [][][]float64, scale float64) {
	c := o.c.Latent
	queries := o.linearQuery(name, x)
	q = heads(queries, c.Nope+c.Rope)
	low := o.linear(name+"kv_a_proj_with_mqa", x)
	k, v = make([][][]float64, len(x)), make([][][]float64, len(x))
	for t := range x {
		for _, h := range q[t] {
			o.rotate(h[c.Nope:], t)
		}
		latent := rms(low[t][:c.KVRank], o.tensor(name+"kv_a_layernorm.weight").data, float64(o.c.NormEps))
		shared := low[t][c.KVRank:]
		o.rotate(shared, t)
		expanded := o.linear(name+"kv_b_proj", [][]float64{latent})
		for _, h := range heads(expanded, c.Nope+c.Value)[0] {
			k[t] = append(k[t], append(append([]float64(nil), h[:c.Nope]...), shared...))
			v[t] = append(v[t], h[c.Nope:])
		}
	}
	scale = 1 / math.Sqrt(float64(c.Nope+c.Rope))
	if r := o.c.Rope; r.Type == "yarn" && r.MScaleAllDim != 0 {
		m := 0.1*r.MScaleAllDim*math.Log(r.Factor) + 1
		scale *= m * m
	}
	return q, k, v, scale
}

func (o *Oracle) linearQuery(name string, x [][]float64) [][]float64 {
	if o.c.Latent.QRank == 0 {
		return o.linear(name+"q_proj", x)
	}
	return o.linear(name+"q_b_proj", o.norm(o.linear(name+"q_a_proj", x), name+"q_a_layernorm"))
}

// experts is a mixture-of-experts layer over normed rows.
func (o *Oracle) experts(name string, x [][]float64) [][]float64 {
	m := o.c.MoE
	out := make([][]float64, len(x))
	if m.Shared > 0 {
		out = o.mlp(name+"shared_experts.", x)
	}
	logits := o.linear(name+"gate", x)
	for t := range x {
		if out[t] == nil {
			out[t] = make([]float64, len(x[t]))
		}
		for e, weight := range o.route(name, m, logits[t]) {
			y := o.mlp(fmt.Sprintf("%sexperts.%d.", name, e), x[t:t+1])[0]
			for i := range y {
				out[t][i] += weight * y[i]
			}
		}
	}
	return out
}

// route is the chosen experts of one row and their weights.
func (o *Oracle) route(name string, m *model.MoE, logits []float64) map[int]float64 {
	scores := append([]float64(nil), logits...)
	if m.Sigmoid {
		for i, v := range scores {
			scores[i] = 1 / (1 + math.Exp(-v))
		}
	} else {
		softmax(scores)
	}
	choice := append([]float64(nil), scores...)
	if m.Bias {
		for i, b := range o.tensor(name + "gate.e_score_correction_bias").data {
			choice[i] += b
		}
	}
	if m.Groups > 1 {
		size := m.Experts / m.Groups
		group := make([]float64, m.Groups)
		for g := range group {
			best := largest(choice[g*size:(g+1)*size], 2)
			group[g] = choice[g*size+best[0]] + choice[g*size+best[1]]
		}
		kept := map[int]bool{}
		for _, g := range largest(group, m.TopGroups) {
			kept[g] = true
		}
		for e := range choice {
			if !kept[e/size] {
				choice[e] = math.Inf(-1)
			}
		}
	}
	chosen, sum := map[int]float64{}, 0.0
	for _, e := range largest(choice, m.TopK) {
		chosen[e] = scores[e]
		sum += scores[e]
	}
	for e := range chosen {
		if m.Normalize {
			chosen[e] /= sum
		}
		chosen[e] *= float64(m.Scale)
	}
	return chosen
}

// largest is the indices of the k largest values.
func largest(x []float64, k int) []int {
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(a, b int) bool { return x[order[a]] > x[order[b]] })
	return order[:k]
}

func dot(a, b []float64) float64 {
	sum := 0.0
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

func softmax(x []float64) {
	top := math.Inf(-1)
	for _, v := range x {
		top = max(top, v)
	}
	sum := 0.0
	for i, v := range x {
		x[i] = math.Exp(v - top)
		sum += x[i]
	}
	for i := range x {
		x[i] /= sum
	}
}
