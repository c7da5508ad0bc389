//go:build cuda

package cuda

import (
	"strconv"
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

// jointParams is src/stream.cuh's Products.
type jointParams struct {
	of   [maxJoint]productParams
	ends [maxJoint]uint32
	_    uint32
}

const maxJoint = 3

// join makes one launch of products of the same rows. There is at least one.
func join(products []productParams) (p jointParams) {
	var tiles uint32
	for i := range p.of {
		at := min(i, len(products)-1)
		if i == at {
			tiles += products[i].w.out / 16
		}
		p.of[i], p.ends[i] = products[at], tiles
	}
	return p
}

// tiles is how many tiles of 16 outputs there are.
func (p *jointParams) tiles() int { return int(p.ends[maxJoint-1]) }

// streamLaunch is a launch of a kernel of src/stream.cuh.
type streamLaunch struct {
	grid
	kernel string
}

// streaming is how the device streams tiles of a format past so many rows; false
// where it cannot.
func (d *Device) streaming(format, tiles, rows int) (streamLaunch, bool) {
	r, ok := ringOf(format, rowsAtOnce(rows))
	if !ok || !d.early || r.fixedBytes()+leastStages*r.stageBytes() > d.shared {
		return streamLaunch{}, false
	}
	return streamLaunch{
		grid: grid{
			x: min(tiles, d.processors), y: (rows + r.rows - 1) / r.rows, threads: streamThreads, shared: d.shared, early: true,
		},
		kernel: "matmul_stream_" + formatNames[r.format] + "_" + strconv.Itoa(r.rows),
	}, true
}
