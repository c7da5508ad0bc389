package cpu

import (
	"errors"
	"fmt"

	"github.com/octet-run/octet/kernels"
)

// Config says how a Backend uses its machine.
type Config struct {
	Threads int // cores used, the caller's included; 0 means 1
	ISA     ISA // Auto, or what the group agreed on
}

func (c Config) validate() error {
	if c.Threads < 0 {
		return fmt.Errorf("cpu: %d threads: give 0 or more", c.Threads)
	}
	return nil
}

// Backend computes on the cores of one rank. It implements kernels.Backend.
type Backend struct {
	*routines
	isa   ISA
	team  *team
	batch *kernels.Batch
	err   error // first since the last Sync

	owned   arena // Alloc: until Close
	scratch arena // Scratch: until the next BeginPass
	work    arena // within one call
	packed  arena // x in the order of the weights, within one product

	products  products
	attention attention
	runs      []expertRun
}

var _ kernels.Backend = (*Backend)(nil)

// New returns a Backend that the caller closes.
func New(c Config) (*Backend, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	isa, err := c.ISA.resolve()
	if err != nil {
		return nil, err
	}
	r := routinesFor(isa)
	return &Backend{
		routines: &r, isa: isa, team: newTeam(max(c.Threads, 1), &r),
		owned: arena{sparse: true},
	}, nil
}

// Name says which instruction set is in use.
func (b *Backend) Name() string { return "cpu (" + b.isa.String() + ")" }

// ISA is the instruction set in use.
func (b *Backend) ISA() ISA { return b.isa }

// Activation is F32.
func (b *Backend) Activation() kernels.DType { return kernels.F32 }

// Alloc returns zeroed memory that lives until Close.
func (b *Backend) Alloc(d kernels.DType, rows, cols int) (kernels.Tensor, error) {
	return takeTensor(&b.owned, d, rows, cols)
}

// Upload returns host: a CPU computes where the weights are.
func (b *Backend) Upload(host kernels.Tensor) (kernels.Tensor, error) { return host, nil }

// BeginPass makes the scratch of the last pass free.
func (b *Backend) BeginPass(batch *kernels.Batch) {
	b.batch = batch
	b.scratch.reset()
}

// Scratch returns memory that is valid until the next BeginPass, not zeroed.
// When there is none left, Sync reports it and the tensor is empty.
func (b *Backend) Scratch(d kernels.DType, rows, cols int) kernels.Tensor {
	t, err := takeTensor(&b.scratch, d, rows, cols)
	if err != nil {
		b.fail(err)
	}
	return t
}

func takeTensor(a *arena, d kernels.DType, rows, cols int) (kernels.Tensor, error) {
	t := kernels.Tensor{DType: d, Rows: rows, Cols: cols, Stride: cols}
	if t.Empty() {
		return t, nil
	}
	p, err := a.take(t.ByteLen())
	if err != nil {
		return kernels.Tensor{DType: d}, err
	}
	t.Host = p
	return t, nil
}

// Download copies t to dst, row after row.
func (b *Backend) Download(dst []byte, t kernels.Tensor) error {
	if err := b.Sync(); err != nil {
		return err
	}
	if t.Empty() {
		return nil
	}
	width := t.Cols * t.DType.Bytes()
	if len(dst) < t.Rows*width {
		return fmt.Errorf("cpu: download of %d bytes into %d", t.Rows*width, len(dst))
	}
	for r := range t.Rows {
		copy(dst[r*width:], t.ByteRow(r))
	}
	return nil
}

// Sync returns the first error since the last Sync. All calls have finished.
func (b *Backend) Sync() error {
	err := b.err
	b.err = nil
	return err
}

// Close ends the team and frees all memory: tensors of this Backend are invalid from here on.
func (b *Backend) Close() error {
	return errors.Join(b.team.close(), b.owned.close(), b.scratch.close(), b.work.close(), b.packed.close())
}

func (b *Backend) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}
