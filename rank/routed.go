package rank

import (
	"fmt"

	"github.com/octet-run/octet/kernels"
)

// routed is a backend that notes which experts a pass chooses: what of their weights
// it must read depends on that.
type routed struct {
	kernels.Backend
	chosen []chosenExperts // one a layer with experts, while noting
	noting bool
}

// chosenExperts is one layer's choice, and what an expert of this rank weighs.
type chosenExperts struct {
	ids         kernels.Tensor // I32 [rows, choices], of the pass
	first, here int            // experts that this rank has
	expertBytes int
}

// Experts runs the experts and notes the choice.
func (r *routed) Experts(dst, x, ids, weights kernels.Tensor, gate, up, down []kernels.Matrix, first int) {
	if r.noting && len(gate) > 0 {
		r.chosen = append(r.chosen, chosenExperts{
			ids: ids, first: first, here: len(gate), expertBytes: gate[0].Bytes() + up[0].Bytes() + down[0].Bytes(),
		})
	}
	r.Backend.Experts(dst, x, ids, weights, gate, up, down, first)
}

// unread is how many bytes of the experts' weights pass, which is run once for this,
// does not need: those of experts that no row chose.
func (r *routed) unread(pass func()) (int, error) {
	r.noting, r.chosen = true, r.chosen[:0]
	pass()
	r.noting = false
	bytes := 0
	for layer, c := range r.chosen {
		if err := readable(r.Backend, &c.ids); err != nil {
			return 0, fmt.Errorf("read the choices of layer %d: %w", layer, err)
		}
		distinct := map[int32]bool{}
		for row := range c.ids.Rows {
			for _, id := range c.ids.I32Row(row) {
				if at := int(id) - c.first; at >= 0 && at < c.here {
					distinct[id] = true
				}
			}
		}
		bytes += (c.here - len(distinct)) * c.expertBytes
	}
	return bytes, r.Sync()
}
