package shm

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Segment is a mapping of shared memory and the descriptor behind it. Whoever
// created or opened it closes it.
type Segment struct {
	file *os.File
	mem  []byte
}

// Create makes a zeroed segment of size bytes. The name shows up in /proc only.
func Create(name string, size int) (*Segment, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create shared memory %q: %w", name, err)
	}
	file := os.NewFile(uintptr(fd), name)
	if err := file.Truncate(int64(size)); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("size shared memory %q to %d bytes: %w", name, size, err)
	}
	return mapFile(file, size)
}

// Open maps a segment inherited as an open file and takes ownership of the file.
// The size is the file's own.
func Open(file *os.File) (*Segment, error) {
	info, err := file.Stat()
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("open shared memory %q: %w", file.Name(), err)
	}
	return mapFile(file, int(info.Size()))
}

func mapFile(file *os.File, size int) (*Segment, error) {
	if size <= 0 {
		_ = file.Close()
		return nil, fmt.Errorf("map shared memory %q: size %d is not positive", file.Name(), size)
	}
	mem, err := mapShared(int(file.Fd()), size)
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("map %d bytes of shared memory %q: %w", size, file.Name(), err)
	}
	return &Segment{file: file, mem: mem}, nil
}

// File is the descriptor to hand to a child process.
func (s *Segment) File() *os.File { return s.file }

// Bytes is the whole mapping.
func (s *Segment) Bytes() []byte { return s.mem }

// Close unmaps the memory and closes the descriptor. Slices and words of the
// segment must not be used afterwards.
func (s *Segment) Close() error {
	if s.mem == nil {
		return nil
	}
	err := unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(s.mem)), uintptr(len(s.mem)))
	s.mem = nil
	if cerr := s.file.Close(); err == nil {
		err = cerr
	}
	return err
}

// Word is the 32-bit word at byte offset off, which must be a multiple of four.
func (s *Segment) Word(off int) *Word {
	if off%4 != 0 || off < 0 || off+4 > len(s.mem) {
		panic(fmt.Sprintf("shm: word at offset %d of a segment of %d bytes", off, len(s.mem)))
	}
	return (*Word)(unsafe.Pointer(&s.mem[off]))
}

// Counter is the 64-bit counter at byte offset off, a multiple of eight.
func (s *Segment) Counter(off int) *Counter {
	if off%8 != 0 || off < 0 || off+8 > len(s.mem) {
		panic(fmt.Sprintf("shm: counter at offset %d of a segment of %d bytes", off, len(s.mem)))
	}
	return (*Counter)(unsafe.Pointer(&s.mem[off]))
}
