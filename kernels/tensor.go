package kernels

import (
	"fmt"
	"unsafe"
)

// DType is the storage type of one element.
type DType uint8

// The storage types that checkpoints and activations use.
const (
	Invalid DType = iota
	F32
	BF16
	F16
	F8E4M3
	I32
	I64
	U8
	Bool
)

var dtypeNames = [...]string{"invalid", "f32", "bf16", "f16", "f8_e4m3", "i32", "i64", "u8", "bool"}

// String returns the lower-case name of d.
func (d DType) String() string {
	if int(d) < len(dtypeNames) {
		return dtypeNames[d]
	}
	return fmt.Sprintf("dtype(%d)", uint8(d))
}

// Bytes is the size of one element of d.
func (d DType) Bytes() int {
	switch d {
	case F32, I32:
		return 4
	case BF16, F16:
		return 2
	case I64:
		return 8
	case F8E4M3, U8, Bool:
		return 1
	}
	return 0
}

// Tensor is a view of a row-major matrix in a backend's memory. A vector is a
// tensor of one row. The view does not own its memory.
type Tensor struct {
	DType  DType
	Rows   int
	Cols   int
	Stride int // elements from one row to the next

	Host   unsafe.Pointer // memory the CPU can address, or nil
	Device uintptr        // CUDA device address, or 0
}

// HostTensor views data, which must hold at least rows*cols elements.
func HostTensor[T any](d DType, rows, cols int, data []T) Tensor {
	t := Tensor{DType: d, Rows: rows, Cols: cols, Stride: cols}
	if len(data) > 0 {
		t.Host = unsafe.Pointer(unsafe.SliceData(data))
	}
	return t
}

// Empty reports whether the tensor has no elements: an uneven split can leave
// a rank with none.
func (t Tensor) Empty() bool { return t.Rows == 0 || t.Cols == 0 }

// ByteLen is the number of bytes from the first to the last element.
func (t Tensor) ByteLen() int {
	if t.Empty() {
		return 0
	}
	return ((t.Rows-1)*t.Stride + t.Cols) * t.DType.Bytes()
}

// RowRange is the view of rows [lo, hi).
func (t Tensor) RowRange(lo, hi int) Tensor {
	return t.offset(lo*t.Stride, hi-lo, t.Cols)
}

// ColRange is the view of columns [lo, hi).
func (t Tensor) ColRange(lo, hi int) Tensor {
	return t.offset(lo, t.Rows, hi-lo)
}

func (t Tensor) offset(elements, rows, cols int) Tensor {
	out := t
	out.Rows, out.Cols = rows, cols
	bytes := elements * t.DType.Bytes()
	if t.Host != nil {
		out.Host = unsafe.Add(t.Host, bytes)
	}
	if t.Device != 0 {
		out.Device += uintptr(bytes)
	}
	return out
}

// F32Row is row r of a host tensor of dtype F32.
func (t Tensor) F32Row(r int) []float32 { return hostRow[float32](t, r) }

// I32Row is row r of a host tensor of dtype I32.
func (t Tensor) I32Row(r int) []int32 { return hostRow[int32](t, r) }

// U16Row is row r of a host tensor of dtype BF16 or F16, as bits.
func (t Tensor) U16Row(r int) []uint16 { return hostRow[uint16](t, r) }

// ByteRow is row r of a host tensor, as bytes.
func (t Tensor) ByteRow(r int) []byte {
	if t.Cols == 0 {
		return nil
	}
	size := t.DType.Bytes()
	return unsafe.Slice((*byte)(unsafe.Add(t.Host, r*t.Stride*size)), t.Cols*size)
}

func hostRow[T any](t Tensor, r int) []T {
	if t.Cols == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Add(t.Host, r*t.Stride*t.DType.Bytes())), t.Cols)
}
