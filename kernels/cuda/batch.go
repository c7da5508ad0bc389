//go:build cuda

package cuda

import "github.com/octet-run/octet/kernels"

// batch is the device's copy of a kernels.Batch; see description.
type batch struct {
	description
	rows      int
	spans     int // of attentionSpan positions, that attention has memory for
	memory    buffer
	tokens    uintptr
	positions uintptr
	slots     uintptr
	views     uintptr // [rows] of src/attention.cu's View
	tiles     uintptr // [mostTiles(rows)] of its Tile, zeros behind the last
	lists     uintptr // what views point into
}

// BeginPass makes the scratch of the last pass free and carries batch to the device.
func (b *Backend) BeginPass(in *kernels.Batch) {
	b.scratch.reset()
	if b.recording {
		b.beginRecorded(in)
		return
	}
	b.describe(in)
	b.fit(len(b.batch.words))
	b.point()
	// The copy of the last pass must have left words before they change again:
	// the driver copies pageable memory before it returns.
	b.send(b.batch.memory.p, b.batch.words)
}

// describe lays the batch out in host memory.
func (b *Backend) describe(in *kernels.Batch) {
	b.batch.description.describe(in)
	b.batch.rows = passRows(in)
	b.batch.spans = coarse(max(1, (b.batch.longest+attentionSpan-1)/attentionSpan))
}

// fit makes room on the device for so many words. Graphs that were recorded
// before name the old memory.
func (b *Backend) fit(words int) {
	need, d := 4*words, &b.batch
	if need <= d.memory.size {
		return
	}
	size := max(2*need, leastDescription)
	b.generation++
	if d.memory.p != 0 {
		b.fail(b.device.Sync())
		b.fail(b.device.Free(d.memory.p))
		d.memory = buffer{}
	}
	p, err := b.device.Alloc(size)
	if err != nil {
		b.fail(err)
		return
	}
	d.memory = buffer{p: p, size: size}
}

// point sets where the parts of the description are on the device.
func (b *Backend) point() {
	d := &b.batch
	at := func(word int) uintptr { return d.memory.p + uintptr(4*word) }
	d.tokens, d.positions, d.slots, d.views, d.tiles, d.lists = at(0), at(d.description.positions), at(d.description.slots),
		at(d.description.views), at(d.description.tiles), at(d.at)
}
