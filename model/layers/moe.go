package layers

import (
	"fmt"

	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/model"
)

// MoE is one rank's part of a mixture of experts: a slice of every expert's
// width, or some experts whole. The router runs on every rank alike.
type MoE struct {
	gate           kernels.Matrix
	router         kernels.Router
	gates, ups     []kernels.Matrix
	downs          []kernels.Matrix
	first          int
	shared         *MLP // or nil
	contributes    bool // the rank has a part of the routed experts
	zero           kernels.Matrix
	joint          [3]kernels.Product // router, and the shared expert's gate and up
	bytesPerExpert int
}

// LoadMoE takes the rank's part. whole gives ranks whole experts.
func LoadMoE(w *Weights, name string, hidden int, c *model.MoE, whole bool) *MoE {
	m := &MoE{
		gate: w.gate(name+".gate.weight", c.Experts, hidden),
		router: kernels.Router{
			Experts: c.Experts, TopK: c.TopK, Sigmoid: c.Sigmoid,
			Groups: c.Groups, TopGroups: c.TopGroups, Normalize: c.Normalize, Scale: c.Scale,
		},
		zero: kernels.Matrix{Out: hidden},
	}
	if c.Bias {
		m.router.Bias = w.F32Vector(name+".gate.e_score_correction_bias", c.Experts)
	}
	if c.Shared > 0 {
		m.shared = LoadMLP(w, name+".shared_experts", hidden, c.Shared, false)
	}
	experts := model.Shard{Rank: 0, Ranks: 1}
	if whole {
		experts = w.Shard
	}
	lo, hi := experts.Split(c.Experts)
	m.first = lo
	for e := range c.Experts {
		m.loadExpert(w, fmt.Sprintf("%s.experts.%d", name, e), hidden, c.Width, whole, lo <= e && e < hi)
	}
	m.contributes = len(m.gates) > 0 && m.gates[0].Out > 0
	return m
}

// loadExpert takes the rank's slice of one expert; mine says whether it has one.
func (m *MoE) loadExpert(w *Weights, name string, hidden, width int, whole, mine bool) {
	part := *w
	if whole {
		part.Shard = model.Shard{Rank: 0, Ranks: 1}
	}
	if !mine {
		part.skip(name+".gate_proj", name+".up_proj", name+".down_proj")
		return
	}
	e := LoadMLP(&part, name, hidden, width, false)
	m.gates, m.ups, m.downs = append(m.gates, e.gate), append(m.ups, e.up), append(m.downs, e.down)
	m.bytesPerExpert = e.Bytes()
}

// Forward writes the rank's partial sum of the layer over x to dst.
// dst, x: [rows, hidden].
func (m *MoE) Forward(p Pass, dst, x kernels.Tensor) {
	b := p.Backend
	if !m.contributes {
		m.forwardShared(p, dst, x)
		return
	}
	m.joint[0] = kernels.Product{Dst: b.Scratch(kernels.F32, p.Rows, m.gate.Out), X: x, W: m.gate}
	logits := m.joint[0].Dst
	if m.shared != nil {
		gate, up := p.Product(x, m.shared.gate), p.Product(x, m.shared.up)
		m.joint[1], m.joint[2] = gate, up
		b.MatMuls(m.joint[:])
		m.shared.finish(p, dst, gate.Dst, up.Dst)
	} else {
		b.MatMuls(m.joint[:1])
		m.forwardShared(p, dst, x)
	}
	ids := b.Scratch(kernels.I32, p.Rows, m.router.TopK)
	weights := b.Scratch(kernels.F32, p.Rows, m.router.TopK)
	b.Route(ids, weights, logits, m.router)
	b.Experts(dst, x, ids, weights, m.gates, m.ups, m.downs, m.first)
}

// forwardShared writes what the shared expert adds, or zeros.
func (m *MoE) forwardShared(p Pass, dst, x kernels.Tensor) {
	if m.shared != nil {
		m.shared.Forward(p, dst, x)
	} else {
		p.Backend.MatMul(dst, p.Scratch(0), m.zero)
	}
}

// Bytes is what a pass reads of the layer's weights when every expert is chosen.
func (m *MoE) Bytes() int {
	total := m.gate.Bytes() + len(m.gates)*m.bytesPerExpert
	if m.shared != nil {
		total += m.shared.Bytes()
	}
	return total
}
