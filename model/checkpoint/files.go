package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Files is an open checkpoint folder.
type Files struct {
	dir      string
	shards   []*shard
	tensors  map[string]located
	unlisted map[string]string // file of each tensor that the index does not name
	random   *Random           // makes tensors up; nil for files

	mu     sync.Mutex
	arenas []*arena // copies made by loaders; freed with the mappings
}

// shard is one mapped file, or memory that the caller owns.
type shard struct {
	file *os.File // nil for memory
	data []byte
}

// readAt fills dst from the file without touching the mapping.
func (s *shard) readAt(dst []byte, offset int64) error {
	if s.file == nil {
		copy(dst, s.data[offset:])
		return nil
	}
	_, err := s.file.ReadAt(dst, offset)
	return err
}

func (s *shard) close() error {
	if s.file == nil {
		return nil
	}
	var err error
	if s.data != nil {
		err = unix.Munmap(s.data)
	}
	return errors.Join(err, s.file.Close())
}

type located struct {
	Info
	shard *shard
}

const singleName = "model.safetensors"

// Open maps a checkpoint folder and reads its headers, no weights.
func Open(dir string) (*Files, error) {
	f := &Files{dir: dir, tensors: map[string]located{}}
	if err := f.open(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// OpenBytes reads a safetensors file that is already in memory, such as one
// embedded in the program. data must stay unchanged until Close.
func OpenBytes(name string, data []byte) (*Files, error) {
	infos, err := parseHeader(name, data, int64(len(data)))
	if err != nil {
		return nil, err
	}
	s := &shard{data: data}
	f := &Files{dir: name, shards: []*shard{s}, tensors: map[string]located{}}
	for _, info := range infos {
		f.tensors[info.Name] = located{info, s}
	}
	return f, nil
}

func (f *Files) open() error {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return err
	}
	var safetensors, pickles, others []string
	for _, e := range entries {
		switch filepath.Ext(strings.TrimSuffix(e.Name(), ".index.json")) {
		case ".safetensors":
			if !strings.HasSuffix(e.Name(), ".json") {
				safetensors = append(safetensors, e.Name())
			}
		case ".bin", ".pt", ".pth", ".ckpt":
			pickles = append(pickles, e.Name())
		case ".gguf", ".h5", ".msgpack", ".onnx", ".npz":
			others = append(others, e.Name())
		}
	}
	switch {
	case slices.Contains(safetensors, singleName):
		return f.openAll([]string{singleName})
	case exists(filepath.Join(f.dir, indexName)):
		return f.openIndex()
	case len(safetensors) == 1:
		return f.openAll(safetensors)
	case len(safetensors) > 1:
		return &FormatError{
			File: f.dir, Expected: indexName,
			Found: fmt.Sprintf("%d safetensors files and no index", len(safetensors)), Advice: "download the index too",
		}
	case len(pickles) > 0:
		return &FormatError{
			File: f.dir, Expected: "safetensors", Found: pickles[0] + ", a pickle",
			Advice: "unpickling runs code from the file, so it is refused: convert it on a machine you trust, " +
				"with safetensors.torch.save_file(torch.load(FILE, weights_only=True), \"model.safetensors\")",
		}
	case len(others) > 0:
		return &FormatError{
			File: f.dir, Expected: "safetensors", Found: others[0] + " alone",
			Advice: "download the model's safetensors files",
		}
	}
	return &FormatError{
		File: f.dir, Expected: singleName + " or " + indexName, Found: "neither",
		Advice: "give the folder that holds a checkpoint's files",
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// openAll maps files and takes every tensor in them.
func (f *Files) openAll(names []string) error {
	for _, name := range names {
		infos, s, err := f.mapFile(name)
		if err != nil {
			return err
		}
		for _, info := range infos {
			f.tensors[info.Name] = located{info, s}
		}
	}
	return nil
}

// naming adds the tensor that a file was opened for to an error about the file.
func naming(err error, tensor string) error {
	var format *FormatError
	if errors.As(err, &format) && format.Tensor == "" {
		format.Tensor = tensor
	}
	return err
}

func (f *Files) mapFile(name string) ([]Info, *shard, error) {
	path := filepath.Join(f.dir, name)
	// Asked before it is opened: opening a pipe waits for its writer.
	stat, err := os.Stat(path)
	found := ""
	switch {
	case errors.Is(err, fs.ErrNotExist):
		found = "no such file"
	case err != nil:
		return nil, nil, err
	case !stat.Mode().IsRegular():
		found = "something that is not a file"
	case stat.Size() < prefixBytes:
		found = fmt.Sprintf("%d bytes", stat.Size())
	}
	if found != "" {
		return nil, nil, &FormatError{File: path, Expected: "a safetensors file", Found: found, Advice: "download it again"}
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	s := &shard{file: file}
	f.shards = append(f.shards, s)
	s.data, err = unix.Mmap(int(file.Fd()), 0, int(stat.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("map %s: %w", path, err)
	}
	// What is not in the page cache yet then comes there in large pages where the file
	// system has them: fewer faults now, fewer misses in every pass.
	_ = unix.Madvise(s.data, unix.MADV_HUGEPAGE)
	infos, err := parseHeader(path, s.data, stat.Size())
	return infos, s, err
}

// Dir is the folder.
func (f *Files) Dir() string { return f.dir }

// Has reports whether there is a tensor of that name.
func (f *Files) Has(name string) bool {
	_, ok := f.tensors[name]
	return ok
}

// Lookup describes a tensor.
func (f *Files) Lookup(name string) (Info, bool) {
	t, ok := f.tensors[name]
	return t.Info, ok
}

// Names is every tensor's name, sorted.
func (f *Files) Names() []string { return slices.Sorted(maps.Keys(f.tensors)) }

// Bytes is the size of all tensors.
func (f *Files) Bytes() int64 {
	total := int64(0)
	for _, t := range f.tensors {
		total += t.Bytes
	}
	return total
}

// Close unmaps everything. Tensors taken from f must no longer be used.
func (f *Files) Close() error {
	var errs []error
	for _, s := range f.shards {
		errs = append(errs, s.close())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.arenas {
		errs = append(errs, a.free())
	}
	f.shards, f.arenas, f.tensors = nil, nil, nil
	return errors.Join(errs...)
}
