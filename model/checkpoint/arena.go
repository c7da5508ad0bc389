package checkpoint

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/octet-run/octet/kernels"
	"golang.org/x/sys/unix"
)

// arena hands out anonymous memory from large mappings. Pages that are never
// written cost nothing. The memory is outside the Go heap: the collector never
// scans it and it does not count towards its pace.
type arena struct {
	chunks [][]byte
	used   int  // of the last chunk
	reused bool // what it hands out may hold what was there before
}

const (
	chunkBytes = 64 << 20
	alignment  = 64 // a cache line, and a vector register
)

// take returns n bytes, zeroed unless they were taken and released before.
func (a *arena) take(n int) ([]byte, error) {
	start := (a.used + alignment - 1) &^ (alignment - 1)
	if len(a.chunks) == 0 || start+n > len(a.chunks[len(a.chunks)-1]) {
		chunk, err := unix.Mmap(-1, 0, max(n, chunkBytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			return nil, fmt.Errorf("reserve %d bytes for weights: %w", max(n, chunkBytes), err)
		}
		// Small pages cost more to fault in than to fill. Large ones are a request:
		// where the kernel has none, small ones serve.
		_ = unix.Madvise(chunk, unix.MADV_HUGEPAGE)
		a.chunks, start = append(a.chunks, chunk), 0
	}
	a.used = start + n
	return a.chunks[len(a.chunks)-1][start:a.used:a.used], nil
}

// tensor takes memory for a tensor.
func (a *arena) tensor(d kernels.DType, rows, cols int) (kernels.Tensor, error) {
	t := kernels.Tensor{DType: d, Rows: rows, Cols: cols, Stride: cols}
	if t.Empty() {
		return t, nil
	}
	data, err := a.take(rows * cols * d.Bytes())
	if err != nil {
		return t, err
	}
	t.Host = unsafe.Pointer(unsafe.SliceData(data))
	return t, nil
}

// zeroed takes memory for a tensor that its owner fills in part.
func (a *arena) zeroed(d kernels.DType, rows, cols int) (kernels.Tensor, error) {
	t, err := a.tensor(d, rows, cols)
	if t.Host != nil && a.reused {
		clear(unsafe.Slice((*byte)(t.Host), t.ByteLen()))
	}
	return t, err
}

// reset frees everything but one chunk, which is used again.
func (a *arena) reset() error {
	a.reused = true
	var errs []error
	for len(a.chunks) > 1 {
		errs = append(errs, unix.Munmap(a.chunks[len(a.chunks)-1]))
		a.chunks = a.chunks[:len(a.chunks)-1]
	}
	a.used = 0
	return errors.Join(errs...)
}

func (a *arena) free() error {
	err := a.reset()
	for _, c := range a.chunks {
		err = errors.Join(err, unix.Munmap(c))
	}
	a.chunks = nil
	return err
}
