package layers

import (
	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/model"
)

// NewRope puts the tables of a rotary embedding on the device.
func NewRope(b kernels.Backend, r model.Rope, positions int) (kernels.Rope, error) {
	cos, sin := r.Tables(positions)
	out := kernels.Rope{Dim: r.Dim, Interleaved: r.Interleaved}
	var err error
	if out.Cos, err = b.Upload(kernels.HostTensor(kernels.F32, positions, r.Dim/2, cos)); err != nil {
		return out, err
	}
	out.Sin, err = b.Upload(kernels.HostTensor(kernels.F32, positions, r.Dim/2, sin))
	return out, err
}
