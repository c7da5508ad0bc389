package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strings"

	"github.com/octet-run/octet/kernels"
)

// Info is one tensor as a file's header describes it.
type Info struct {
	Name   string
	DType  kernels.DType // Invalid for types that Octet does not compute with
	Type   string        // as it stands in the header
	Shape  []int
	File   string
	Offset int64 // in the file
	Bytes  int64
}

const (
	prefixBytes    = 8         // the header's length, little-endian
	maxHeaderBytes = 100 << 20 // the format's own limit
	maxDims        = 8
	metadataName   = "__metadata__"
)

// storage is the size in bits of the types that the format knows.
var storage = map[string]struct {
	bits  int
	dtype kernels.DType
}{
	"BOOL": {8, kernels.Bool}, "U8": {8, kernels.U8}, "I8": {8, kernels.Invalid},
	"F8_E4M3": {8, kernels.F8E4M3}, "F8_E5M2": {8, kernels.Invalid}, "F8_E8M0": {8, kernels.Invalid},
	"F4": {4, kernels.Invalid}, "F6_E2M3": {6, kernels.Invalid}, "F6_E3M2": {6, kernels.Invalid},
	"U16": {16, kernels.Invalid}, "I16": {16, kernels.Invalid}, "F16": {16, kernels.F16}, "BF16": {16, kernels.BF16},
	"U32": {32, kernels.Invalid}, "I32": {32, kernels.I32}, "F32": {32, kernels.F32},
	"U64": {64, kernels.Invalid}, "I64": {64, kernels.I64}, "F64": {64, kernels.Invalid}, "C64": {64, kernels.Invalid},
}

// parseHeader reads the header of a safetensors file of size bytes. data is the
// file's beginning and holds at least the header where the file does.
func parseHeader(file string, data []byte, size int64) ([]Info, error) {
	bad := func(expected, found string) error {
		return &FormatError{
			File: file, Expected: expected, Found: found,
			Advice: "the file is damaged or not safetensors: download it again",
		}
	}
	if size < prefixBytes || len(data) < prefixBytes {
		return nil, bad("a safetensors header", fmt.Sprintf("%d bytes", size))
	}
	if bytes.HasPrefix(data, []byte("version https://git-lfs")) {
		return nil, &FormatError{
			File: file, Expected: "safetensors", Found: "the pointer that Git LFS keeps in its place",
			Advice: "fetch the file itself, with git lfs pull",
		}
	}
	length := binary.LittleEndian.Uint64(data)
	if length > maxHeaderBytes || int64(length) > size-prefixBytes || int64(length) > int64(len(data)-prefixBytes) {
		return nil, bad(fmt.Sprintf("a header within the file's %d bytes", size), fmt.Sprintf("a header of %d bytes", length))
	}
	begin := prefixBytes + int64(length)
	infos, err := decodeHeader(file, data[prefixBytes:begin])
	if err != nil {
		return nil, err
	}
	payload := size - begin
	for i := range infos {
		if end := infos[i].Offset + infos[i].Bytes; end > payload {
			return nil, &FormatError{
				File: file, Tensor: infos[i].Name,
				Expected: fmt.Sprintf("data within the file's %d bytes", payload),
				Found:    fmt.Sprintf("data ending at byte %d", end), Advice: "the file is truncated: download it again",
			}
		}
	}
	if err := checkLayout(file, infos, payload); err != nil {
		return nil, err
	}
	for i := range infos {
		infos[i].Offset += begin
	}
	return infos, nil
}

// checkLayout demands what the format demands: tensors cover the payload
// without overlap or hole.
func checkLayout(file string, infos []Info, payload int64) error {
	order := slices.Clone(infos)
	slices.SortStableFunc(order, func(a, b Info) int {
		if a.Offset != b.Offset {
			return compare(a.Offset, b.Offset)
		}
		return compare(a.Bytes, b.Bytes)
	})
	at := int64(0)
	for _, t := range order {
		if t.Offset != at {
			return &FormatError{
				File: file, Tensor: t.Name,
				Expected: fmt.Sprintf("data from byte %d, where the tensor before it ends", at),
				Found:    fmt.Sprintf("data from byte %d", t.Offset),
			}
		}
		at += t.Bytes
	}
	if at != payload {
		return &FormatError{
			File: file, Expected: fmt.Sprintf("%d bytes of tensors", at),
			Found: fmt.Sprintf("%d bytes", payload), Advice: "the file is damaged: download it again",
		}
	}
	return nil
}

func compare(a, b int64) int {
	if a < b {
		return -1
	}
	return 1
}

// decodeHeader reads the JSON object. Offsets are relative to the payload.
func decodeHeader(file string, data []byte) ([]Info, error) {
	entries, ok := scanHeader(data)
	if !ok {
		var err error
		if entries, err = readHeader(file, data); err != nil {
			return nil, err
		}
	}
	infos := make([]Info, 0, len(entries))
	seen := make(map[string]bool, len(entries))
	for i := range entries {
		e := &entries[i]
		if seen[e.name] {
			return nil, &FormatError{File: file, Tensor: e.name, Expected: "one entry", Found: "two"}
		}
		seen[e.name] = true
		info, err := e.info(file)
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// readHeader walks the JSON object token by token, so that a name that comes
// twice is seen.
func readHeader(file string, data []byte) ([]entry, error) {
	fail := func(found string) error {
		return &FormatError{
			File: file, Expected: "a JSON header", Found: found,
			Advice: "the file is damaged or not safetensors: download it again",
		}
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, fail("something else")
	}
	var entries []entry
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, fail(err.Error())
		}
		name, _ := key.(string)
		if name == metadataName {
			var ignored map[string]string
			if err := dec.Decode(&ignored); err != nil {
				return nil, fail("metadata that is not text: " + jsonProblem(err))
			}
			continue
		}
		e, err := readEntry(dec, file, name)
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	if _, err := dec.Token(); err != nil {
		return nil, fail(err.Error())
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fail("more than one JSON value")
	}
	return entries, nil
}

func readEntry(dec *json.Decoder, file, name string) (entry, error) {
	fail := func(found string) (entry, error) {
		return entry{}, &FormatError{File: file, Tensor: name, Expected: "dtype, shape and data_offsets", Found: found}
	}
	var fields struct {
		DType   *string  `json:"dtype"`
		Shape   []uint64 `json:"shape"`
		Offsets []uint64 `json:"data_offsets"`
	}
	if err := dec.Decode(&fields); err != nil {
		return fail(jsonProblem(err))
	}
	if fields.DType == nil || fields.Shape == nil || len(fields.Offsets) != 2 {
		return fail("an entry without them")
	}
	return entry{name, *fields.DType, fields.Shape, fields.Offsets[0], fields.Offsets[1]}, nil
}

// info checks an entry by itself.
func (e *entry) info(file string) (Info, error) {
	fail := func(expected, found string) (Info, error) {
		return Info{}, &FormatError{File: file, Tensor: e.name, Expected: expected, Found: found}
	}
	kind, ok := storage[e.dtype]
	if !ok {
		return fail("a dtype of the safetensors format", fmt.Sprintf("%q", e.dtype))
	}
	if len(e.shape) > maxDims {
		return fail(fmt.Sprintf("at most %d dimensions", maxDims), fmt.Sprintf("%d", len(e.shape)))
	}
	info := Info{Name: e.name, DType: kind.dtype, Type: e.dtype, File: file, Shape: make([]int, len(e.shape))}
	total, overflow := uint64(kind.bits), uint64(0)
	for i, n := range e.shape {
		overflow, total = bits.Mul64(total, n)
		if overflow != 0 || total > 1<<60 || n > 1<<60 {
			return fail("a tensor that fits its file", "shape "+shapeString(e.shape))
		}
		info.Shape[i] = int(n)
	}
	if e.begin > e.end || e.end > 1<<60 {
		return fail("data_offsets in order", fmt.Sprintf("[%d, %d]", e.begin, e.end))
	}
	if total%8 != 0 || e.end-e.begin != total/8 {
		return fail(fmt.Sprintf("%d bytes for %s %s", total/8, e.dtype, shapeString(e.shape)),
			fmt.Sprintf("%d bytes", e.end-e.begin))
	}
	info.Offset, info.Bytes = int64(e.begin), int64(e.end-e.begin)
	return info, nil
}

// ShapeString is a shape as [2, 3].
func ShapeString(shape ...int) string { return shapeString(shape) }

func shapeString[T int | uint64](shape []T) string {
	parts := make([]string, len(shape))
	for i, n := range shape {
		parts[i] = fmt.Sprint(n)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}
