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
// goes in steps, which are the same on every rank, whatever its slice.
func (l *Loader) copyColumns(out *kernels.Tensor, t located, s Slice) error {
	dst, err := l.own(out)
	if err == nil {
		err = l.copySteps(dst, out.Cols, t, s)
	}
	if err != nil && l.cfg.Window != nil {
		l.cfg.Window.Leave() // this rank is no longer where the others are
		l.cfg.Window = nil
	}
	return err
}

func (l *Loader) copySteps(dst []byte, cols int, t located, s Slice) error {
	size := t.DType.Bytes()
	c := columns{tensor: t, row: s.Cols * size, lo: s.Lo * size, part: cols * size}
	step := s.Rows
	if l.behind != nil && s.Split {
		step = max(1, int(l.behind.limit)/c.row)
	}
	for r := 0; r < s.Rows; r += step {
		n := min(step, s.Rows-r)
		c.begin = t.Offset + int64(r*c.row)
		if l.behind != nil && s.Split {
			if err := l.behind.ahead(t.shard, c.begin, int64(n*c.row)); err != nil {
				return err
			}
		}
		part := dst[r*c.part : (r+n)*c.part]
		if l.cfg.Window != nil && s.Split {
			done, err := l.copyShared(part, c, n)
			if err != nil {
				return err
			}
			part, c.begin = part[done*c.part:], c.begin+int64(done*c.row)
		}
		if err := l.copyAlone(part, c); err != nil {
			return err
		}
	}
	return nil
}

// columns are bytes [lo, lo+part) of every row, row bytes long, from begin on.
type columns struct {
	tensor        located
	begin         int64
	row, lo, part int
}

// gather copies the columns of whole rows to dst.
func (c *columns) gather(dst, rows []byte) {
	for len(dst) > 0 {
		copy(dst[:c.part], rows[c.lo:])
		dst, rows = dst[c.part:], rows[c.row:]
	}
}

// copyAlone fills dst with columns that no other rank reads for this one.
func (l *Loader) copyAlone(dst []byte, c columns) error {
	if c.part == 0 {
		return nil
	}
	if c.row-c.part >= directGap {
		for ; len(dst) > 0; dst, c.begin = dst[c.part:], c.begin+int64(c.row) {
			if err := l.read(c.tensor, dst[:c.part], c.begin+int64(c.lo)); err != nil {
				return err
			}
		}
		return nil
	}
	perRead := max(1, bufferBytes/c.row)
	if len(l.buffer) < perRead*c.row {
		l.buffer = make([]byte, perRead*c.row)
	}
	for len(dst) > 0 {
		n := min(perRead, len(dst)/c.part)
		if err := l.read(c.tensor, l.buffer[:n*c.row], c.begin); err != nil {
			return err
		}
		c.gather(dst[:n*c.part], l.buffer)
		dst, c.begin = dst[n*c.part:], c.begin+int64(n*c.row)
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
