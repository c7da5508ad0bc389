package shm

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// HugePage is how much memory one entry of a translation buffer can cover.
// Segments of at least that size are mapped at a multiple of it: every process must
// do so for a huge page of the file to be one in its own page tables too.
const HugePage = 2 << 20

const shared = unix.PROT_READ | unix.PROT_WRITE

func mapShared(fd, size int) ([]byte, error) {
	if size < HugePage {
		at, err := unix.MmapPtr(fd, 0, nil, uintptr(size), shared, unix.MAP_SHARED)
		return unsafe.Slice((*byte)(at), size), err
	}
	// Address space with room to begin at a multiple; what is too much goes back.
	whole := (uintptr(size)+pageSize-1)&^(pageSize-1) + HugePage
	base, err := unix.MmapPtr(-1, 0, nil, whole, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	ahead := -uintptr(base) & (HugePage - 1)
	at := unsafe.Add(base, ahead)
	_, err = unix.MmapPtr(fd, 0, at, uintptr(size), shared, unix.MAP_SHARED|unix.MAP_FIXED)
	if err != nil {
		return nil, errors.Join(err, unix.MunmapPtr(base, whole))
	}
	if ahead > 0 {
		err = unix.MunmapPtr(base, ahead)
	}
	if behind := HugePage - ahead; behind > 0 {
		err = errors.Join(err, unix.MunmapPtr(unsafe.Add(at, whole-HugePage), behind))
	}
	return unsafe.Slice((*byte)(at), size), err
}

const pageSize = 4096

// BackByHugePages gives the whole huge pages inside bytes [lo, hi) their memory now,
// for all processes that map the segment. It needs Linux 6.1, and some milliseconds
// for each; without it the segment works as before.
func (s *Segment) BackByHugePages(lo, hi int) error {
	lo, hi = (lo+HugePage-1)&^(HugePage-1), hi&^(HugePage-1)
	if lo >= hi {
		return nil
	}
	part := s.mem[lo:hi]
	if err := unix.Madvise(part, unix.MADV_POPULATE_WRITE); err != nil {
		return fmt.Errorf("give memory to %d bytes of %q: %w", hi-lo, s.file.Name(), err)
	}
	if err := unix.Madvise(part, unix.MADV_COLLAPSE); err != nil {
		return fmt.Errorf("gather %d bytes of %q into huge pages: %w", hi-lo, s.file.Name(), err)
	}
	return nil
}
