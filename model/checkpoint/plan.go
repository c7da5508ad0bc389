package checkpoint

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/octet-run/octet/kernels"
)

// Axis is the direction in which a tensor is cut.
type Axis uint8

// The ways a rank takes a tensor.
const (
	Whole Axis = iota
	ByRows
	ByColumns
)

var axisNames = [...]string{"whole", "rows", "columns"}

// String names the axis.
func (a Axis) String() string { return axisNames[a] }

// MarshalJSON writes the axis by name.
func (a Axis) MarshalJSON() ([]byte, error) { return json.Marshal(a.String()) }

// Slice is the part of one tensor that a rank takes: [Lo, Hi) along Axis of a
// matrix of Rows by Cols. A vector has one row and is cut by columns.
type Slice struct {
	Tensor string        `json:"tensor"`
	File   string        `json:"file"`
	DType  kernels.DType `json:"-"`
	Type   string        `json:"dtype"`
	Rows   int           `json:"rows"`
	Cols   int           `json:"cols"`
	Axis   Axis          `json:"axis"`
	Lo     int           `json:"lo"`
	Hi     int           `json:"hi"`
	Bytes  int64         `json:"bytes"`
	Mapped bool          `json:"mapped"` // used in place; otherwise copied
	Vector bool          `json:"vector"` // one-dimensional in the file
	Split  bool          `json:"-"`      // the other ranks take the other columns
}

// Plan is every slice that one rank takes, in the order of loading.
type Plan struct {
	Slices []Slice `json:"slices"`
}

// Bytes is the size of the rank's part of the model.
func (p Plan) Bytes() int64 {
	total := int64(0)
	for _, s := range p.Slices {
		total += s.Bytes
	}
	return total
}

// Copied is how much of that is copied; the rest is used in place.
func (p Plan) Copied() int64 {
	total := int64(0)
	for _, s := range p.Slices {
		if !s.Mapped {
			total += s.Bytes
		}
	}
	return total
}

// Fprint writes the plan as a table.
func (p Plan) Fprint(w io.Writer) error {
	for _, s := range p.Slices {
		how := "copied"
		if s.Mapped {
			how = "mapped"
		}
		if _, err := fmt.Fprintf(w, "%-64s %-8s [%d, %d] %-7s %6d:%-6d %12d bytes %s\n",
			s.Tensor, s.Type, s.Rows, s.Cols, s.Axis, s.Lo, s.Hi, s.Bytes, how); err != nil {
			return err
		}
	}
	return nil
}
