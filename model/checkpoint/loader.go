package checkpoint

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"github.com/octet-run/octet/kernels"
	"golang.org/x/sys/unix"
)

// LoadConfig says how a loader works. The zero value loads for a CPU.
type LoadConfig struct {
	// Dry records slices and problems and reads no weights: tensors have shape
	// but no memory.
	Dry bool
	// Lazy leaves mapped pages to be read at first use.
	Lazy bool
	// Upload moves a host tensor to the device; nil keeps it.
	Upload func(kernels.Tensor) (kernels.Tensor, error)
	// Progress is told, every few megabytes and at the end, how many bytes of weights
	// have been read so far.
	Progress func(loaded int64)
	// Limit is how many bytes of the columns that are copied stay in the page cache
	// while loading, beside the weights that are used in place; 0: all of them.
	Limit int64
	// Meet, under a limit, waits until every rank of the group has called it; nil for
	// a rank alone. All ranks call it equally often.
	Meet func() error
	// Window is memory shared with the other ranks of the group, which load the same
	// checkpoint; nil for a rank alone.
	Window Window
}

// Loader takes one rank's slices of a checkpoint. After a problem it goes on
// with tensors that have no memory; Finish reports all problems.
type Loader struct {
	files    *Files
	cfg      LoadConfig
	copies   *arena
	used     map[string]bool
	plan     Plan
	problems []error
	loaded   int64
	told     int64 // of loaded, to Progress
	buffer   []byte
	behind   *behind // nil without a limit
}

// NewLoader makes a loader. Memory it takes is freed by f.Close.
func (f *Files) NewLoader(cfg LoadConfig) *Loader {
	l := &Loader{files: f, cfg: cfg, copies: &arena{}, used: map[string]bool{}}
	if cfg.Limit > 0 && !cfg.Dry {
		l.behind = &behind{limit: cfg.Limit, meet: cfg.Meet}
	}
	if cfg.Dry {
		l.cfg.Window = nil
	}
	f.mu.Lock()
	f.arenas = append(f.arenas, l.copies)
	f.mu.Unlock()
	return l
}

// Dir is the checkpoint's folder, for messages.
func (l *Loader) Dir() string { return l.files.dir }

// Files is the checkpoint the loader takes from.
func (l *Loader) Files() *Files { return l.files }

// Eager reports whether weights are read now, and may be looked at.
func (l *Loader) Eager() bool { return !l.cfg.Lazy && !l.cfg.Dry }

// Has reports whether the checkpoint has a tensor.
func (l *Loader) Has(name string) bool { return l.files.Has(name) }

// Floats are the types of unquantised weights.
func Floats() []kernels.DType { return []kernels.DType{kernels.BF16, kernels.F16, kernels.F32} }

// Rows takes rows [lo, hi) of a float matrix of shape [rows, cols] for the device.
func (l *Loader) Rows(name string, rows, cols, lo, hi int) kernels.Tensor {
	return l.place(l.Take(Slice{Tensor: name, Rows: rows, Cols: cols, Axis: ByRows, Lo: lo, Hi: hi}, Floats()...))
}

// Columns takes columns [lo, hi) of a float matrix of shape [rows, cols] for the device.
func (l *Loader) Columns(name string, rows, cols, lo, hi int) kernels.Tensor {
	return l.place(l.Take(Slice{Tensor: name, Rows: rows, Cols: cols, Axis: ByColumns, Lo: lo, Hi: hi}, Floats()...))
}

// TakeVector takes elements [lo, hi) of a vector of n elements, on the host.
func (l *Loader) TakeVector(name string, n, lo, hi int, types ...kernels.DType) kernels.Tensor {
	return l.take(Slice{Tensor: name, Rows: 1, Cols: n, Axis: ByColumns, Lo: lo, Hi: hi, Vector: true}, []int{n}, types)
}

// Take takes a slice of a matrix, on the host. The tensor must have one of the
// types. Slice needs Tensor, Rows, Cols, Axis, Lo and Hi.
func (l *Loader) Take(s Slice, types ...kernels.DType) kernels.Tensor {
	return l.take(s, []int{s.Rows, s.Cols}, types)
}

func (l *Loader) take(s Slice, shape []int, types []kernels.DType) kernels.Tensor {
	l.used[s.Tensor] = true
	if s.Axis == Whole {
		s.Lo, s.Hi = 0, s.Rows
	}
	rows, cols := s.Hi-s.Lo, s.Cols
	if s.Axis == ByColumns {
		rows, cols = s.Rows, s.Hi-s.Lo
	}
	out := kernels.Tensor{DType: types[0], Rows: rows, Cols: cols, Stride: cols}
	if l.files.random != nil {
		return l.makeUp(s, out)
	}
	t, ok := l.files.tensors[s.Tensor]
	if err := l.check(s.Tensor, t.Info, ok, shape, types); err != nil {
		l.Fail(err)
		return out
	}
	out.DType = t.DType
	s.File, s.DType, s.Type = t.File, t.DType, t.Info.Type
	s.Bytes = int64(rows) * int64(cols) * int64(t.DType.Bytes())
	inRows := s.Axis != ByColumns || s.Rows == 1 || cols == s.Cols
	first := int64(s.Lo)
	if s.Axis != ByColumns {
		first *= int64(s.Cols)
	}
	offset := t.Offset + first*int64(t.DType.Bytes())
	split := s.Split && s.Axis == ByColumns && (l.behind != nil || l.cfg.Window != nil)
	s.Mapped = inRows && !split && aligned(t.shard, offset, t.DType)
	l.plan.Slices = append(l.plan.Slices, s)
	if l.cfg.Dry || out.Empty() && !split {
		return out
	}
	var err error
	switch {
	case s.Mapped:
		out.Host = unsafe.Pointer(&t.shard.data[offset])
		l.populate(t.shard, offset, s.Bytes)
	case inRows && !split:
		err = l.copyRows(&out, t, offset)
	default:
		err = l.copyColumns(&out, t, s)
	}
	if err != nil {
		l.Fail(err)
		return out
	}
	l.progress(s.Bytes)
	return out
}

// makeUp fills a slice with random weights. Scales of quantised weights stand in
// for the magnitude that the packed values lack.
func (l *Loader) makeUp(s Slice, out kernels.Tensor) kernels.Tensor {
	s.File, s.DType, s.Type = l.files.dir, out.DType, strings.ToUpper(out.DType.String())
	s.Bytes = int64(out.Rows) * int64(out.Cols) * int64(out.DType.Bytes())
	l.plan.Slices = append(l.plan.Slices, s)
	if l.cfg.Dry || out.Empty() || out.DType == kernels.I64 {
		return out
	}
	out, err := l.copies.tensor(out.DType, out.Rows, out.Cols)
	if err != nil {
		l.Fail(err)
		return out
	}
	dst := unsafe.Slice((*byte)(out.Host), out.ByteLen())
	switch {
	case IsNorm(s.Tensor):
		Ones(dst, out.DType)
	case strings.Contains(s.Tensor, "scale"):
		l.files.random.Fill(dst, out.DType, s.Cols*s.Cols)
	default:
		l.files.random.Fill(dst, out.DType, s.Cols)
	}
	l.progress(s.Bytes)
	return out
}

// check compares a tensor with what the model needs.
func (l *Loader) check(name string, t Info, ok bool, shape []int, types []kernels.DType) error {
	file := t.File
	if where, unlisted := l.files.unlisted[name]; unlisted {
		return &FormatError{
			File: filepath.Join(l.files.dir, indexName), Tensor: name, Expected: "an entry for it", Found: "none, though it is in " + where,
			Advice: "the index is damaged: download it again",
		}
	}
	if !ok {
		return &FormatError{File: l.files.dir, Tensor: name, Expected: "shape " + shapeString(shape), Found: "no such tensor"}
	}
	if !slices.Equal(t.Shape, shape) {
		return &FormatError{File: file, Tensor: name, Expected: "shape " + shapeString(shape), Found: shapeString(t.Shape)}
	}
	if !slices.Contains(types, t.DType) {
		return &FormatError{File: file, Tensor: name, Expected: fmt.Sprint("type ", types), Found: t.Type}
	}
	return nil
}

func aligned(s *shard, offset int64, d kernels.DType) bool {
	return len(s.data) > 0 && (uintptr(unsafe.Pointer(unsafe.SliceData(s.data)))+uintptr(offset))%uintptr(d.Bytes()) == 0
}

// populate reads mapped pages ahead of use, so that the first pass does not
// wait for storage and progress means something.
func (l *Loader) populate(s *shard, offset, n int64) {
	if l.cfg.Lazy || s.file == nil {
		return
	}
	page := int64(unix.Getpagesize())
	begin, end := offset/page*page, offset+n
	// Refused by kernels before 5.14; the pages are then read at first use.
	_ = unix.Madvise(s.data[begin:end], unix.MADV_POPULATE_READ)
}

// progressBytes are loaded between two calls of Progress, each of which is a message
// to the supervisor: a large model has a hundred thousand tensors.
const progressBytes = 8 << 20

func (l *Loader) progress(n int64) {
	l.loaded += n
	if l.loaded-l.told >= progressBytes {
		l.tell()
	}
}

func (l *Loader) tell() {
	l.told = l.loaded
	if l.cfg.Progress != nil {
		l.cfg.Progress(l.loaded)
	}
}

// Alloc takes zeroed host memory for weights that a layer derives from others. In
// a dry run it has no memory.
func (l *Loader) Alloc(d kernels.DType, rows, cols int) kernels.Tensor {
	t := kernels.Tensor{DType: d, Rows: rows, Cols: cols, Stride: cols}
	if l.cfg.Dry {
		return t
	}
	t, err := l.copies.zeroed(d, rows, cols)
	if err != nil {
		l.Fail(err)
	}
	return t
}

// Place moves host tensors to the device. When the device has memory of its own,
// that ends the life of every host copy taken so far: place what was taken
// before taking more, and together what was derived together.
func (l *Loader) Place(host ...kernels.Tensor) []kernels.Tensor {
	if l.cfg.Dry || l.cfg.Upload == nil || len(l.problems) > 0 {
		return host
	}
	placed, moved := make([]kernels.Tensor, len(host)), false
	for i, t := range host {
		placed[i] = t
		if t.Host == nil {
			continue
		}
		var err error
		if placed[i], err = l.cfg.Upload(t); err != nil {
			l.Fail(err)
			return host
		}
		moved = moved || placed[i].Host != t.Host
	}
	if moved {
		if err := l.copies.reset(); err != nil {
			l.Fail(err)
		}
	}
	return placed
}

// place is Place for one tensor.
func (l *Loader) place(t kernels.Tensor) kernels.Tensor { return l.Place(t)[0] }

// Skip marks tensors as another rank's concern.
func (l *Loader) Skip(names ...string) {
	for _, n := range names {
		l.used[n] = true
	}
}

// Fail records a problem.
func (l *Loader) Fail(err error) { l.problems = append(l.problems, err) }

// Finish reports the first problem, missing, mis-shaped and extra tensors
// included, and how many there are.
func (l *Loader) Finish(skippable func(name string) bool) (Plan, error) {
	if l.behind != nil && len(l.problems) == 0 {
		if err := l.behind.drop(); err != nil {
			l.Fail(err)
		}
	}
	l.endWindow()
	if l.told < l.loaded {
		l.tell()
	}
	problems := l.problems
	for _, name := range l.files.Names() {
		if !l.used[name] && !skippable(name) {
			t := l.files.tensors[name]
			problems = append(problems, &FormatError{
				File: t.File, Tensor: name,
				Expected: "no tensor of that name in this architecture",
				Found:    t.Type + " " + shapeString(t.Shape),
			})
		}
	}
	switch len(problems) {
	case 0:
		return l.plan, nil
	case 1:
		return l.plan, problems[0]
	}
	return l.plan, fmt.Errorf("%w (the first of %d problems)", problems[0], len(problems))
}

// Int64s reads a vector of integers that was taken on the host.
func Int64s(t kernels.Tensor) []int64 {
	out := make([]int64, t.Cols)
	row := t.ByteRow(0)
	for i := range out {
		if t.DType == kernels.I32 {
			out[i] = int64(int32(binary.LittleEndian.Uint32(row[4*i:])))
		} else {
			out[i] = int64(binary.LittleEndian.Uint64(row[8*i:]))
		}
	}
	return out
}
