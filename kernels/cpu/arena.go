package cpu

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	slabBytes = 16 << 20 // reserved at a time; untouched pages cost nothing
	alignment = 64       // one cache line, one AVX-512 register
)

// arena hands out zero-initialised memory outside the Go heap. After reset the
// same sequence of requests gets the same addresses, not zeroed again.
type arena struct {
	// sparse memory is filled bit by bit in many places, as caches of keys and
	// values are: a large page in each place would be mostly empty.
	sparse bool

	slabs [][]byte
	slab  int // being filled
	used  int // bytes of it
}

// take returns bytes of aligned memory, valid until reset.
func (a *arena) take(bytes int) (unsafe.Pointer, error) {
	bytes = (bytes + alignment - 1) &^ (alignment - 1)
	for ; a.slab < len(a.slabs); a.slab, a.used = a.slab+1, 0 {
		if slab := a.slabs[a.slab]; a.used+bytes <= len(slab) {
			p := unsafe.Pointer(&slab[a.used])
			a.used += bytes
			return p, nil
		}
	}
	slab, err := mapAnonymous(max(bytes, slabBytes), !a.sparse)
	if err != nil {
		return nil, err
	}
	a.slabs = append(a.slabs, slab)
	a.used = bytes
	return unsafe.Pointer(&slab[0]), nil
}

func (a *arena) reset() { a.slab, a.used = 0, 0 }

func (a *arena) close() error {
	var errs []error
	for _, slab := range a.slabs {
		errs = append(errs, unmap(slab))
	}
	*a = arena{sparse: a.sparse}
	return errors.Join(errs...)
}

// mapAnonymous reserves zeroed memory, of large pages where they are wanted.
func mapAnonymous(bytes int, large bool) ([]byte, error) {
	m, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("cpu: map %d bytes of memory: %w; lower the cache size or the batch", bytes, err)
	}
	if large {
		// A request: where the kernel has no large pages, small ones serve.
		_ = unix.Madvise(m, unix.MADV_HUGEPAGE)
	}
	return m, nil
}

func unmap(m []byte) error {
	if m == nil {
		return nil
	}
	if err := unix.Munmap(m); err != nil {
		return fmt.Errorf("cpu: unmap %d bytes: %w", len(m), err)
	}
	return nil
}

// layout cuts one piece of memory into aligned parts.
type layout struct {
	base unsafe.Pointer // nil while only measuring
	used uintptr
}

// part is the next part, of elements of size bytes.
func (l *layout) part(elements, size int) unsafe.Pointer {
	at := l.used
	l.used += (uintptr(elements*size) + alignment - 1) &^ (alignment - 1)
	if l.base == nil {
		return nil
	}
	return unsafe.Add(l.base, at)
}

func (l *layout) f32(elements int) []float32 {
	p := l.part(elements, 4)
	if p == nil {
		return nil
	}
	return unsafe.Slice((*float32)(p), elements)
}
