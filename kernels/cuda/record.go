//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/octet-run/octet/kernels"
)

// leastDescription is the memory for a description, in bytes: enough for most
// groups, since graphs are out of date once it grows.
const leastDescription = 1 << 20

// Recording is a pass as a graph: one launch for all of it. It begins with a copy
// of the batch's description from pinned host memory, so that it runs for every
// batch of its shape.
type Recording struct {
	shape      PassShape
	graph      *Graph
	generation int   // of the memory that it names
	scratch    []int // taken when the pass ends
}

// Record captures the pass that enqueue enqueues, and runs it. enqueue begins one
// pass over in and waits for nothing; a pass of the same shape has run before, so
// that kernels are loaded and memory is there. After an error nothing has run.
func (b *Backend) Record(in *kernels.Batch, enqueue func()) (*Recording, error) {
	if b.err != nil {
		return nil, b.err
	}
	r := &Recording{shape: ShapeOf(in)}
	b.fit(r.shape.Words)
	if err := errors.Join(b.err, b.stage(r.shape.Words)); err != nil {
		b.err = nil
		return nil, err
	}
	b.recording = true
	graph, err := b.device.Capture(func() error {
		enqueue()
		return b.err
	})
	b.recording, b.err = false, nil
	if err != nil {
		return nil, fmt.Errorf("cuda: record a pass of %d rows: %w", r.shape.Rows, err)
	}
	r.graph, r.generation, r.scratch = graph, b.generation, b.scratch.mark()
	b.staged = true
	if err := graph.Launch(); err != nil {
		return nil, errors.Join(err, graph.Close())
	}
	return r, nil
}

// Replay enqueues the recorded pass for another batch of its shape. It reports
// false, having done nothing, where memory that the recording names has moved.
func (b *Backend) Replay(r *Recording, in *kernels.Batch) bool {
	if r.generation != b.generation || r.shape != ShapeOf(in) {
		return false
	}
	if b.err != nil {
		return true
	}
	if b.staged { // the graph before may not have read its description
		b.fail(b.device.Sync())
	}
	b.describe(in)
	b.fillStage(r.shape.Words)
	b.point()
	b.scratch.restore(r.scratch)
	b.staged = true
	b.fail(r.graph.Launch())
	return true
}

// Close frees the graph, once it runs no more.
func (r *Recording) Close() error { return r.graph.Close() }

// beginRecorded is BeginPass under capture: the copy becomes part of the graph.
func (b *Backend) beginRecorded(in *kernels.Batch) {
	shape := ShapeOf(in)
	b.describe(in)
	b.fillStage(shape.Words)
	b.point()
	b.fail(wrap("copy to device", cu.MemcpyHtoDAsync(cu.DevicePtr(b.batch.memory.p), unsafe.Pointer(&b.staging[0]),
		int64(4*shape.Words), b.device.stream)))
}

// stage makes the pinned memory that graphs copy descriptions from hold so many words.
func (b *Backend) stage(words int) error {
	if 4*words <= len(b.staging) {
		return nil
	}
	b.generation++
	if err := errors.Join(b.device.Sync(), b.unstage()); err != nil {
		return err
	}
	size := max(8*words, leastDescription)
	memory, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return fmt.Errorf("cuda: map %d bytes of host memory: %w", size, err)
	}
	if _, err := b.device.RegisterHost(memory); err != nil {
		return errors.Join(err, syscall.Munmap(memory))
	}
	b.staging = memory
	return nil
}

func (b *Backend) unstage() error {
	if b.staging == nil {
		return nil
	}
	err := errors.Join(b.device.UnregisterHost(b.staging), syscall.Munmap(b.staging))
	b.staging = nil
	return err
}

// fillStage copies the description to the pinned memory, zeros behind it.
func (b *Backend) fillStage(words int) {
	to := unsafe.Slice((*int32)(unsafe.Pointer(&b.staging[0])), words)
	clear(to[copy(to, b.batch.words):])
}
