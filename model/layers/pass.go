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

// Product is x times w with room for the result in scratch memory, to be done.
func (p Pass) Product(x kernels.Tensor, w kernels.Matrix) kernels.Product {
	return kernels.Product{Dst: p.Scratch(w.Out), X: x, W: w}
}

// MatMuls is x times each of w, in scratch memory, as one job of the device. joint
// is the caller's, as many as there are matrices, and holds the results.
func (p Pass) MatMuls(joint []kernels.Product, x kernels.Tensor, w ...*kernels.Matrix) {
	for i := range joint {
		joint[i] = p.Product(x, *w[i])
	}
	p.Backend.MatMuls(joint)
}

// MatMul is x times w in scratch memory.
func (p Pass) MatMul(x kernels.Tensor, w kernels.Matrix) kernels.Tensor {
	dst := p.Scratch(w.Out)
	p.Backend.MatMul(dst, x, w)
	return dst
}
