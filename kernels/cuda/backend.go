//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/octet-run/octet/kernels"
)

// Backend computes on one GPU with bf16 activations. It implements
// kernels.Backend. Kernels are chosen by the shape of the weights, never by the
// number of rows, so a row's bits do not depend on its company.
type Backend struct {
	device  *Device
	scratch scratch // Scratch: until the next BeginPass
	batch   batch
	work    map[string]*buffer // memory within one call, by purpose
	experts map[expertKey]uintptr
	groups  map[string]headGroups
	err     error // first since the last Sync

	// Graphs of passes: see Record.
	recording  bool
	generation int    // changes when memory moves that graphs name
	staging    []byte // pinned host memory that graphs copy descriptions from
	staged     bool   // a graph was launched since the last Sync
}

var _ kernels.Backend = (*Backend)(nil)

// buffer is device memory that grows to what its user needs.
type buffer struct {
	p    uintptr
	size int
}

// New opens the device on the calling thread, to which the caller has locked
// itself and on which it makes all calls.
func New(c Config) (*Backend, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	ordinal := c.Device
	if c.PCI != "" {
		var err error
		if ordinal, err = find(c.PCI); err != nil {
			return nil, err
		}
	}
	d, err := Open(ordinal)
	if err != nil {
		return nil, err
	}
	b, err := NewOn(d, c)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return b, nil
}

// NewOn is New for a device that is already open; Close closes it.
func NewOn(d *Device, c Config) (*Backend, error) {
	return &Backend{
		device: d, scratch: scratch{alloc: d.Alloc, most: c.ScratchBytes}, work: map[string]*buffer{},
		experts: map[expertKey]uintptr{}, groups: map[string]headGroups{},
	}, nil
}

// Load compiles every kernel of the backend, which otherwise happens at the first
// use: a rank in a group would keep the others waiting for seconds. beat, if not nil,
// is called between modules.
func (b *Backend) Load(beat func()) error {
	for _, module := range []string{"rows", "matmul", "attention", "experts"} {
		if _, err := b.device.load(b.device.build(module)); err != nil {
			return err
		}
		if beat != nil {
			beat()
		}
	}
	return nil
}

// Device is the device that the backend computes on.
func (b *Backend) Device() *Device { return b.device }

// Name is the device's product name.
func (b *Backend) Name() string { return "cuda (" + b.device.Name() + ")" }

// Activation is BF16.
func (b *Backend) Activation() kernels.DType { return kernels.BF16 }

// Alloc returns zeroed memory that lives until Close.
func (b *Backend) Alloc(d kernels.DType, rows, cols int) (kernels.Tensor, error) {
	t := kernels.Tensor{DType: d, Rows: rows, Cols: cols, Stride: cols}
	if t.Empty() {
		return t, nil
	}
	p, err := b.device.Alloc(t.ByteLen())
	t.Device = p
	return t, err
}

// Upload copies a host tensor to the device, without gaps between rows.
func (b *Backend) Upload(host kernels.Tensor) (kernels.Tensor, error) {
	t, err := b.Alloc(host.DType, host.Rows, host.Cols)
	if err != nil || t.Empty() {
		return t, err
	}
	if host.Stride == host.Cols {
		return t, b.device.Write(t.Device, unsafe.Slice((*byte)(host.Host), host.ByteLen()))
	}
	width := host.Cols * host.DType.Bytes()
	packed := make([]byte, host.Rows*width)
	for r := range host.Rows {
		copy(packed[r*width:], host.ByteRow(r))
	}
	return t, b.device.Write(t.Device, packed)
}

// Scratch returns memory that is valid until the next BeginPass, not zeroed.
// When there is none left, Sync reports it and the tensor is empty.
func (b *Backend) Scratch(d kernels.DType, rows, cols int) kernels.Tensor {
	t := kernels.Tensor{DType: d, Rows: rows, Cols: cols, Stride: cols}
	if t.Empty() {
		return t
	}
	p, ok, err := b.scratch.take(t.ByteLen(), !b.recording)
	b.fail(err)
	if !ok {
		b.fail(fmt.Errorf("cuda: no room for %v [%d, %d] in %d bytes of scratch: raise ScratchBytes or pass fewer rows",
			d, rows, cols, b.scratch.size))
		return kernels.Tensor{DType: d}
	}
	t.Device = p
	return t
}

// Download copies t to host memory after everything enqueued, in row order.
func (b *Backend) Download(dst []byte, t kernels.Tensor) error {
	if err := b.Sync(); err != nil {
		return err
	}
	width := t.Cols * t.DType.Bytes()
	if len(dst) < t.Rows*width {
		return fmt.Errorf("cuda: download of %d bytes into %d", t.Rows*width, len(dst))
	}
	if t.Stride == t.Cols {
		return b.device.Read(dst[:t.Rows*width], t.Device)
	}
	for r := range t.Rows {
		if err := b.device.Read(dst[r*width:][:width], t.RowRange(r, r+1).Device); err != nil {
			return err
		}
	}
	return nil
}

// Sync waits for everything enqueued and returns the first error since the last Sync.
func (b *Backend) Sync() error {
	err := b.err
	b.err = nil
	if failed := b.device.Sync(); err == nil {
		err = failed
	}
	b.staged = false
	return err
}

// Close frees all memory and closes the device.
func (b *Backend) Close() error {
	// Pinned memory goes once nothing reads it.
	return errors.Join(b.device.Sync(), b.unstage(), b.device.Close())
}

func (b *Backend) fail(err error) {
	if b.err == nil && err != nil {
		b.err = err
	}
}

// ok reports whether the arguments of op fit; otherwise Sync gets the error.
func (b *Backend) ok(op string, fits bool, format string, args ...any) bool {
	if !fits {
		b.fail(fmt.Errorf("cuda: %s: %s", op, fmt.Sprintf(format, args...)))
	}
	return fits
}

// run enqueues a kernel whose parameters are laid out in *params.
func run[P any](b *Backend, module, name string, g grid, params *P) {
	if b.err != nil {
		return
	}
	f, err := b.device.function(b.device.build(module), name)
	if err == nil {
		err = launchPacked(f, g, b.device.stream, params)
	}
	if err != nil {
		b.fail(fmt.Errorf("kernel %s: %w", name, err))
	}
}

// workspace returns at least bytes of device memory for one purpose. It grows
// outside of captures only: a captured pass follows one that ran.
func (b *Backend) workspace(purpose string, bytes int) uintptr {
	w := b.work[purpose]
	if w == nil {
		w = &buffer{}
		b.work[purpose] = w
	}
	if w.size >= bytes {
		return w.p
	}
	if b.recording {
		b.fail(fmt.Errorf("cuda: a recorded pass needs %d bytes for %s, the pass before it used %d", bytes, purpose, w.size))
		return 0
	}
	if w.p != 0 {
		b.generation++
		b.fail(b.device.Sync())
		b.fail(b.device.Free(w.p))
		*w = buffer{}
	}
	p, err := b.device.Alloc(bytes)
	if err != nil {
		b.fail(err)
		return 0
	}
	*w = buffer{p: p, size: bytes}
	return p
}

// send copies words to the device in the order of the stream.
func (b *Backend) send(dst uintptr, words []int32) {
	if len(words) == 0 || b.err != nil {
		return
	}
	if b.recording {
		b.fail(errors.New("cuda: a list from the host in a recorded pass: it would be the same in every replay"))
		return
	}
	b.fail(wrap("copy to device", cu.MemcpyHtoDAsync(cu.DevicePtr(dst), unsafe.Pointer(unsafe.SliceData(words)),
		int64(4*len(words)), b.device.stream)))
}
