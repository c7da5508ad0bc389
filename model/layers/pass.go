package layers

import "github.com/octet-run/octet/kernels"

// Pass is one forward pass: the device and the number of rows.
type Pass struct {
	Backend kernels.Backend
	Rows    int
}

// Scratch is an activation of the pass, [rows, cols], not zeroed.
func (p Pass) Scratch(cols int) kernels.Tensor {
	return p.Backend.Scratch(p.Backend.Activation(), p.Rows, cols)
}

// Logits is x times w in F32 scratch memory: what is compared is not rounded.
func (p Pass) Logits(x kernels.Tensor, w kernels.Matrix) kernels.Tensor {
	dst := p.Backend.Scratch(kernels.F32, p.Rows, w.Out)
	p.Backend.MatMul(dst, x, w)
	return dst
}

// MatMul is x times w in scratch memory.
func (p Pass) MatMul(x kernels.Tensor, w kernels.Matrix) kernels.Tensor {
	dst := p.Scratch(w.Out)
	p.Backend.MatMul(dst, x, w)
	return dst
}
