package checkpoint

import (
	"fmt"
	"unsafe"

	"github.com/octet-run/octet/kernels"
)

const (
	// directGap is the part of a row from which on it costs less to skip it, by a
	// pread for every row, than to read it and throw it away.
	directGap = 16 << 10
	// bufferBytes are read at a time: they stay in a core's own cache.
	bufferBytes = 1 << 20
)

// copyRows reads rows that lie behind one another in the file into memory of
// their own.
func (l *Loader) copyRows(out *kernels.Tensor, t located, offset int64) error {
	dst, err := l.own(out)
	if err != nil {
		return err
	}
	return l.read(t, dst, offset)
}

// copyColumns reads a slice of every row into memory of its own. Under a limit it
// goes in windows, which are the same on every rank, whatever its slice.
func (l *Loader) copyColumns(out *kernels.Tensor, t located, s Slice) error {
	dst, err := l.own(out)
	if err != nil {
		return err
	}
	row, window := s.Cols*t.DType.Bytes(), s.Rows
	if l.behind != nil && s.Split {
		window = max(1, int(l.behind.limit)/row)
	}
	part := out.Cols * t.DType.Bytes()
	for r := 0; r < s.Rows; r += window {
		n := min(window, s.Rows-r)
		begin := t.Offset + int64(r*row)
		if l.behind != nil && s.Split {
			if err := l.behind.ahead(t.shard, begin, int64(n*row)); err != nil {
				return err
			}
		}
		if err := l.copyWindow(dst[r*part:(r+n)*part], t, begin, row, part, s.Lo*t.DType.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// copyWindow reads part bytes, from lo on, of each row of the window at begin.
func (l *Loader) copyWindow(dst []byte, t located, begin int64, row, part, lo int) error {
	if part == 0 {
		return nil
	}
	if row-part >= directGap {
		for ; len(dst) > 0; dst, begin = dst[part:], begin+int64(row) {
			if err := l.read(t, dst[:part], begin+int64(lo)); err != nil {
				return err
			}
		}
		return nil
	}
	perRead := max(1, bufferBytes/row)
	if len(l.buffer) < perRead*row {
		l.buffer = make([]byte, perRead*row)
	}
	for len(dst) > 0 {
		n := min(perRead, len(dst)/part)
		if err := l.read(t, l.buffer[:n*row], begin); err != nil {
			return err
		}
		for i := range n {
			copy(dst[i*part:(i+1)*part], l.buffer[i*row+lo:])
		}
		dst, begin = dst[n*part:], begin+int64(n*row)
	}
	return nil
}

// own gives a tensor memory of its own, none where it is empty.
func (l *Loader) own(out *kernels.Tensor) ([]byte, error) {
	copied, err := l.copies.tensor(out.DType, out.Rows, out.Cols)
	if err != nil || copied.Empty() {
		return nil, err
	}
	*out = copied
	return unsafe.Slice((*byte)(out.Host), out.ByteLen()), nil
}

func (l *Loader) read(t located, dst []byte, offset int64) error {
	if err := t.shard.readAt(dst, offset); err != nil {
		return fmt.Errorf("read tensor %s of %s: %w", t.Name, t.File, err)
	}
	return nil
}
