//go:build cuda

package cuda

import (
	"strconv"

	"github.com/octet-run/octet/kernels"
)

// ring is src/stream.cuh's Ring for one format and number of rows: what a stage
// holds. Tiles and k-blocks have no part in the sums; they are what was fastest.
type ring struct {
	format         int
	rows           int
	tiles, kBlocks int // of 16 outputs; k-blocks a warp
}

// ringOf is the ring of the kernel for so many rows, or none.
func ringOf(format, rows int) (ring, bool) {
	if format != formatBF16 {
		return ring{}, false
	}
	r := ring{format: format, rows: rows, tiles: 2, kBlocks: 2}
	switch rows {
	case 8:
		r.tiles, r.kBlocks = 1, 4
	case 64:
		r.kBlocks = 1
	}
	return r, true
}

// The constants of src/stream.cuh.
const (
	streamThreads = 12 * 32
	barrierBytes  = 256
	leastStages   = 2
)

// stageBytes is the shared memory of one stage.
func (r ring) stageBytes() int {
	weight, x, xPad := 64, 64, 64
	switch r.format {
	case formatFP8:
		weight, x, xPad = 128, 256, 16
	case formatINT4:
		x, xPad = 256, 16
	}
	blocks := 8 * r.kBlocks
	return 16*r.tiles*(blocks*weight+64) + r.rows*(blocks*x+xPad)
}

// fixedBytes is what a block has beside its stages: barriers and partial sums.
func (r ring) fixedBytes() int {
	together := max(1, min(r.tiles, 64/r.rows))
	return barrierBytes + 4*8*16*r.rows*together
}

// streamLaunch is a launch of a kernel of src/stream.cuh.
type streamLaunch struct {
	grid
	kernel string
	rows   int
}

// streaming is how the device streams w past so many rows; false where it cannot.
func (d *Device) streaming(w kernels.Matrix, rows int) (streamLaunch, bool) {
	r, ok := ringOf(formatOf(w), rows)
	if !ok || !d.early || r.fixedBytes()+leastStages*r.stageBytes() > d.shared {
		return streamLaunch{}, false
	}
	return streamLaunch{
		grid:   grid{x: min(w.Out/16, d.processors), threads: streamThreads, shared: d.shared, early: true},
		kernel: "matmul_stream_" + formatNames[r.format] + "_" + strconv.Itoa(rows), rows: rows,
	}, true
}
