package layers

import "github.com/octet-run/octet/kernels"

// MLP is one rank's slice of the width of a SwiGLU block.
type MLP struct {
	gate, up, down kernels.Matrix
	joint          [2]kernels.Product
}

// LoadMLP takes the rank's slice of an MLP of the given width.
func LoadMLP(w *Weights, name string, hidden, width int, bias bool) *MLP {
	lo, hi := w.Shard.SplitWidth(width, w.Quant.Granule(name+".down_proj"))
	return &MLP{
		gate: w.Rows(Linear{name + ".gate_proj", width, hidden, bias}, lo, hi),
		up:   w.Rows(Linear{name + ".up_proj", width, hidden, bias}, lo, hi),
		down: w.Columns(Linear{name + ".down_proj", hidden, width, bias}, lo, hi),
	}
}

// Forward writes the rank's partial sum of the block over x to dst.
// dst, x: [rows, hidden].
func (m *MLP) Forward(p Pass, dst, x kernels.Tensor) {
	p.MatMuls(m.joint[:], x, &m.gate, &m.up)
	m.finish(p, dst, m.joint[0].Dst, m.joint[1].Dst)
}

// finish is what follows the products with gate and up. It overwrites them.
func (m *MLP) finish(p Pass, dst, gate, up kernels.Tensor) {
	p.Backend.SwiGLU(gate, gate, up)
	p.Backend.MatMul(dst, gate, m.down)
}

// Bytes is what a pass reads of the block's weights.
func (m *MLP) Bytes() int { return m.gate.Bytes() + m.up.Bytes() + m.down.Bytes() }
