package rank

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/kernels/cpu"
	"github.com/octet-run/octet/kernels/cuda"
)

// fakeDevice is a CPU that behaves as a GPU does: its tensors have addresses that the
// host cannot read, and what was enqueued can be recorded and run again.
type fakeDevice struct {
	compute *cpu.Backend
	fabric  *fakeFabric
	rank    int
	memory  []byte // addresses are fakeBase on
	taken   int    // by Alloc, from the front
	scratch int    // by Scratch, from the middle

	batch     *kernels.Batch
	recording *[]func() // what is enqueued goes here instead, if not nil
	err       error
	stale     bool // recordings are out of date, once
	recorded  int
	replayed  int
}

const (
	fakeBase   = uintptr(1) << 40
	fakeMemory = 512 << 20
)

func newFakeDevice(f *fakeFabric, rank int) (*fakeDevice, error) {
	compute, err := cpu.New(cpu.Config{Threads: 1})
	d := &fakeDevice{compute: compute, fabric: f, rank: rank, memory: make([]byte, fakeMemory)}
	f.devices[rank] = d
	return d, err
}

func (d *fakeDevice) enqueue(op func()) {
	if d.recording != nil {
		*d.recording = append(*d.recording, op)
		return
	}
	op()
}

// host is t as the CPU reads it.
func (d *fakeDevice) host(t kernels.Tensor) kernels.Tensor {
	if t.Host != nil {
		panic("a tensor of the host on a device")
	}
	if t.Device != 0 {
		t.Host, t.Device = unsafe.Pointer(&d.memory[t.Device-fakeBase]), 0
	}
	return t
}

func (d *fakeDevice) matrix(m kernels.Matrix) kernels.Matrix {
	m.Data, m.Scale, m.Bias = d.host(m.Data), d.host(m.Scale), d.host(m.Bias)
	return m
}

func (d *fakeDevice) matrices(list []kernels.Matrix) []kernels.Matrix {
	out := slices.Clone(list)
	for i := range out {
		out[i] = d.matrix(out[i])
	}
	return out
}

func (d *fakeDevice) kv(kv kernels.KV) kernels.KV {
	return kernels.KV{K: d.host(kv.K), V: d.host(kv.V)}
}

func (d *fakeDevice) Name() string              { return "fake" }
func (d *fakeDevice) Activation() kernels.DType { return kernels.F32 }

func (d *fakeDevice) at(t kernels.Tensor, offset int) kernels.Tensor {
	if !t.Empty() {
		t.Device = fakeBase + uintptr(offset)
	}
	return t
}

func (d *fakeDevice) Alloc(dt kernels.DType, rows, cols int) (kernels.Tensor, error) {
	t := kernels.Tensor{DType: dt, Rows: rows, Cols: cols, Stride: cols}
	at := d.taken
	d.taken += (t.ByteLen() + 63) &^ 63
	if d.taken > fakeMemory/2 {
		return t, errors.New("the fake device is full")
	}
	return d.at(t, at), nil
}

func (d *fakeDevice) Upload(host kernels.Tensor) (kernels.Tensor, error) {
	t, err := d.Alloc(host.DType, host.Rows, host.Cols)
	if err == nil {
		for r := range t.Rows {
			copy(d.host(t).ByteRow(r), host.ByteRow(r))
		}
	}
	return t, err
}

func (d *fakeDevice) BeginPass(b *kernels.Batch) {
	d.scratch = 0
	d.batch = b
	d.enqueue(func() { d.compute.BeginPass(d.batch) })
}

func (d *fakeDevice) Scratch(dt kernels.DType, rows, cols int) kernels.Tensor {
	t := kernels.Tensor{DType: dt, Rows: rows, Cols: cols, Stride: cols}
	at := fakeMemory/2 + d.scratch
	d.scratch += (t.ByteLen() + 63) &^ 63
	return d.at(t, at)
}

func (d *fakeDevice) Download(dst []byte, t kernels.Tensor) error {
	if err := d.Sync(); err != nil {
		return err
	}
	width := t.Cols * t.DType.Bytes()
	for r := range t.Rows {
		copy(dst[r*width:], d.host(t).ByteRow(r))
	}
	return nil
}

func (d *fakeDevice) Sync() error {
	err := errors.Join(d.err, d.compute.Sync())
	d.err = nil
	return err
}

func (d *fakeDevice) Close() error { return d.compute.Close() }

func (d *fakeDevice) Embed(dst, table kernels.Tensor, first int) {
	d.enqueue(func() { d.compute.Embed(d.host(dst), d.host(table), first) })
}

func (d *fakeDevice) MatMul(dst, x kernels.Tensor, w kernels.Matrix) {
	d.enqueue(func() { d.compute.MatMul(d.host(dst), d.host(x), d.matrix(w)) })
}

func (d *fakeDevice) MatMuls(products []kernels.Product) {
	for _, p := range products {
		d.MatMul(p.Dst, p.X, p.W)
	}
}

func (d *fakeDevice) MatMulBlocks(dst, x kernels.Tensor, w kernels.Matrix, blocks int) {
	d.enqueue(func() { d.compute.MatMulBlocks(d.host(dst), d.host(x), d.matrix(w), blocks) })
}

func (d *fakeDevice) RMSNorm(dst, x, weight kernels.Tensor, eps float32) {
	d.enqueue(func() { d.compute.RMSNorm(d.host(dst), d.host(x), d.host(weight), eps) })
}

func (d *fakeDevice) AddRMSNorm(dst, residual, x, weight kernels.Tensor, eps float32) {
	d.enqueue(func() { d.compute.AddRMSNorm(d.host(dst), d.host(residual), d.host(x), d.host(weight), eps) })
}

func (d *fakeDevice) Add(dst, x, y kernels.Tensor) {
	d.enqueue(func() { d.compute.Add(d.host(dst), d.host(x), d.host(y)) })
}

func (d *fakeDevice) Concat(dst, x, y kernels.Tensor) {
	d.enqueue(func() { d.compute.Concat(d.host(dst), d.host(x), d.host(y)) })
}

func (d *fakeDevice) Copy(dst, src kernels.Tensor) {
	d.enqueue(func() { d.compute.Copy(d.host(dst), d.host(src)) })
}

func (d *fakeDevice) Rotate(x kernels.Tensor, heads, headDim, offset int, r kernels.Rope) {
	r.Cos, r.Sin = d.host(r.Cos), d.host(r.Sin)
	d.enqueue(func() { d.compute.Rotate(d.host(x), heads, headDim, offset, r) })
}

func (d *fakeDevice) StoreKV(kv kernels.KV, k, v kernels.Tensor) {
	d.enqueue(func() { d.compute.StoreKV(d.kv(kv), d.host(k), d.host(v)) })
}

func (d *fakeDevice) MoveKV(kv kernels.KV, from, to []int32) {
	d.fromHost()
	d.compute.MoveKV(d.kv(kv), from, to)
}

func (d *fakeDevice) Attention(dst, q kernels.Tensor, kv kernels.KV, h kernels.Heads, scale float32, window int) {
	d.enqueue(func() { d.compute.Attention(d.host(dst), d.host(q), d.kv(kv), h, scale, window) })
}

func (d *fakeDevice) LatentAttention(dst, q kernels.Tensor, kv kernels.KV, heads, latent, rope int, scale float32) {
	d.enqueue(func() { d.compute.LatentAttention(d.host(dst), d.host(q), d.kv(kv), heads, latent, rope, scale) })
}

func (d *fakeDevice) SwiGLU(dst, gate, up kernels.Tensor) {
	d.enqueue(func() { d.compute.SwiGLU(d.host(dst), d.host(gate), d.host(up)) })
}

func (d *fakeDevice) Route(ids, weights, logits kernels.Tensor, r kernels.Router) {
	r.Bias = d.host(r.Bias)
	d.enqueue(func() { d.compute.Route(d.host(ids), d.host(weights), d.host(logits), r) })
}

func (d *fakeDevice) Experts(dst, x, ids, weights kernels.Tensor, gate, up, down []kernels.Matrix, first int) {
	gate, up, down = d.matrices(gate), d.matrices(up), d.matrices(down)
	d.enqueue(func() {
		d.compute.Experts(d.host(dst), d.host(x), d.host(ids), d.host(weights), gate, up, down, first)
	})
}

func (d *fakeDevice) TopK(values, ids, x kernels.Tensor, k int) {
	d.enqueue(func() { d.compute.TopK(d.host(values), d.host(ids), d.host(x), k) })
}

func (d *fakeDevice) LogSumExp(dst, x kernels.Tensor) {
	d.enqueue(func() { d.compute.LogSumExp(d.host(dst), d.host(x)) })
}

func (d *fakeDevice) Gather(dst, x kernels.Tensor, rows []int32) {
	d.fromHost()
	d.compute.Gather(d.host(dst), d.host(x), rows)
}

// fromHost refuses a list of the host's in a recording, as a device does.
func (d *fakeDevice) fromHost() {
	if d.recording != nil {
		d.err = errors.New("a list of the host in a recording")
	}
}

func (d *fakeDevice) hostMemory(bytes int) ([]byte, error) { return make([]byte, bytes), nil }

func (d *fakeDevice) readBandwidth() (float64, error) { return 1e10, nil }

func (d *fakeDevice) capability() capability { return capability{major: 9, blocks: 500 - d.rank} }

// fakeRecording is a pass of one shape.
type fakeRecording struct {
	shape   cuda.PassShape
	ops     []func()
	scratch int
	open    *int
}

func (r *fakeRecording) Close() error {
	*r.open--
	return nil
}

func (d *fakeDevice) record(b *kernels.Batch, pass func()) (recording, error) {
	var ops []func()
	d.recording = &ops
	pass()
	d.recording = nil
	if err := d.err; err != nil {
		d.err = nil
		return nil, err
	}
	for _, op := range ops {
		op()
	}
	d.recorded++
	return &fakeRecording{cuda.ShapeOf(b), ops, d.scratch, &d.recorded}, nil
}

func (d *fakeDevice) replay(r recording, b *kernels.Batch) bool {
	f := r.(*fakeRecording)
	if d.stale || f.shape != cuda.ShapeOf(b) {
		d.stale = false
		return false
	}
	d.batch, d.scratch = b, f.scratch
	for _, op := range f.ops {
		op()
	}
	d.replayed++
	return true
}

// fakeFabric is what joins fake devices.
type fakeFabric struct {
	devices []*fakeDevice
	// broken says why rank's end over a path does not work, nil for all do.
	broken func(rank int, p path) error

	mu      sync.Mutex
	arrived int
	turn    int
	sources []kernels.Tensor
}

func newFakeFabric(ranks int) *fakeFabric {
	return &fakeFabric{devices: make([]*fakeDevice, ranks), sources: make([]kernels.Tensor, ranks)}
}

// meet returns true when all ranks have come, false when the group is over.
func (f *fakeFabric) meet(control []byte) bool {
	if cuda.Aborted(control) {
		return false
	}
	f.mu.Lock()
	turn := f.turn
	if f.arrived++; f.arrived == len(f.devices) {
		f.arrived, f.turn = 0, turn+1
	}
	f.mu.Unlock()
	for {
		f.mu.Lock()
		met := f.turn != turn
		f.mu.Unlock()
		switch {
		case met:
			return true
		case cuda.Aborted(control):
			return false
		}
		time.Sleep(20 * time.Microsecond)
	}
}

type fakeEnd struct {
	d *fakeDevice
	c endConfig
}

func (d *fakeDevice) end(c endConfig) (end, error) { return &fakeEnd{d, c}, nil }

func (e *fakeEnd) handle() (cuda.Handle, error) { return cuda.Handle{byte(e.c.rank + 1)}, nil }

func (e *fakeEnd) connect(handles []cuda.Handle) error {
	for r, h := range handles {
		if h != (cuda.Handle{byte(r + 1)}) {
			return fmt.Errorf("rank %d's handle is %v", r, h)
		}
	}
	return nil
}

func (e *fakeEnd) check(int) error {
	if e.c.common.blocks != 500-(e.c.ranks-1) {
		return fmt.Errorf("the group has %d blocks in common", e.c.common.blocks)
	}
	if e.d.fabric.broken != nil {
		return e.d.fabric.broken(e.c.rank, e.c.path)
	}
	return nil
}

func (e *fakeEnd) Close() error { return nil }

func (e *fakeEnd) reduce(dst, src kernels.Tensor) error {
	e.d.enqueue(func() { e.sum(e.d.host(dst), e.d.host(src)) })
	return nil
}

// sum is the contract's: along a binary tree over the ranks.
func (e *fakeEnd) sum(dst, src kernels.Tensor) {
	f := e.d.fabric
	f.mu.Lock()
	f.sources[e.c.rank] = src
	f.mu.Unlock()
	if !f.meet(e.c.control) {
		return
	}
	for r := range dst.Rows {
		level := make([][]float32, len(f.sources))
		for i, s := range f.sources {
			level[i] = slices.Clone(s.F32Row(r))
		}
		for n := len(level); n > 1; n = len(level) {
			next := level[:0]
			for i := 0; i < n; i += 2 {
				if i+1 < n {
					for j := range level[i] {
						level[i][j] += level[i+1][j]
					}
				}
				next = append(next, level[i])
			}
			level = next
		}
		copy(dst.F32Row(r), level[0])
	}
	f.meet(e.c.control)
}

func (e *fakeEnd) reduceAddNorm(normed, residual, src, weight kernels.Tensor, eps float32) error {
	sum := e.d.Scratch(src.DType, src.Rows, src.Cols)
	e.d.enqueue(func() {
		e.sum(e.d.host(sum), e.d.host(src))
		e.d.compute.AddRMSNorm(e.d.host(normed), e.d.host(residual), e.d.host(sum), e.d.host(weight), eps)
	})
	return nil
}
