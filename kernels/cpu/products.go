package cpu

import "github.com/octet-run/octet/kernels"

// products is a job of independent products, so that the team is woken once for
// all heads or experts. Splitting outputs, and which rows share a tile, changes
// no sum.
type products struct {
	parts []product
	ends  []int // units up to and including each part
}

func (p *products) unit(w *worker, i int) {
	n := 0
	for p.ends[n] <= i {
		n++
	}
	if n > 0 {
		i -= p.ends[n-1]
	}
	p.parts[n].unit(w, i)
}

func (b *Backend) startProducts() {
	b.products.parts, b.products.ends = b.products.parts[:0], b.products.ends[:0]
	b.packed.reset()
}

// addProduct packs x for the weights.
func (b *Backend) addProduct(dst, x kernels.Tensor, w kernels.Matrix) {
	var p product
	if !dst.Empty() && b.prepare(&p, dst, x, w) {
		b.products.add(p)
	}
}

// addSameX adds a product of the x of the last one, packed anew only if it must.
func (b *Backend) addSameX(dst, x kernels.Tensor, w kernels.Matrix) {
	if n := len(b.products.parts); n > 0 && !dst.Empty() {
		p := b.products.parts[n-1]
		if p.x == x && p.format == b.tileFormat(w) && p.w.ColPhase == w.ColPhase {
			p.use(dst, w, len(b.team.workers))
			b.products.add(p)
			return
		}
	}
	b.addProduct(dst, x, w)
}

func (p *products) add(part product) {
	units := part.units()
	if n := len(p.ends); n > 0 {
		units += p.ends[n-1]
	}
	p.parts, p.ends = append(p.parts, part), append(p.ends, units)
}

func (b *Backend) runProducts() {
	if n := len(b.products.ends); n > 0 {
		b.team.run(&b.products, b.products.ends[n-1])
	}
}
