package collectives

import (
	"fmt"

	"github.com/octet-run/octet/collectives/transport"
)

// GatherToRoot collects the columns of every rank's shard, in rank order, at rank
// 0: shard is [rows, widths[rank]], the result [rows, sum(widths)] there and nil
// elsewhere, valid until the next call but one.
func (c *Communicator) GatherToRoot(shard []float32, rows int, widths []int) ([]float32, error) {
	return c.gatherColumns(transport.GatherToRoot, shard, rows, widths)
}

// AllGather is GatherToRoot with the result on every rank.
func (c *Communicator) AllGather(shard []float32, rows int, widths []int) ([]float32, error) {
	return c.gatherColumns(transport.AllGather, shard, rows, widths)
}

func (c *Communicator) gatherColumns(kind transport.Kind, shard []float32, rows int, widths []int) ([]float32, error) {
	total, widest, err := c.checkWidths(kind, shard, rows, widths)
	if err != nil {
		return nil, err
	}
	var out []float32
	if kind == transport.AllGather || c.rank == 0 {
		out = c.gathered(rows * total)
	}
	// As many rows at a time as the slab holds of the widest shard.
	step := rows
	if widest > 0 {
		step = min(rows, c.link.Capacity()/widest)
	}
	mine := widths[c.rank]
	for lo := 0; lo < rows || lo == 0; lo += max(step, 1) {
		hi := min(lo+step, rows)
		copy(c.outbox(c.rank), shard[lo*mine:hi*mine])
		if err := c.enter(kind, hi-lo, total); err != nil {
			return nil, err
		}
		if err := c.run(c.meeting); err != nil {
			return nil, c.failed(kind, err)
		}
		if out != nil {
			c.interleave(out[lo*total:hi*total], hi-lo, total, widths)
		}
		c.leave()
	}
	return out, nil
}

// interleave puts the ranks' columns beside each other.
func (c *Communicator) interleave(out []float32, rows, total int, widths []int) {
	first := 0
	for r, w := range widths {
		from := c.outbox(r)
		for t := range rows {
			copy(out[t*total+first:t*total+first+w], from[t*w:(t+1)*w])
		}
		first += w
	}
}

func (c *Communicator) checkWidths(kind transport.Kind, shard []float32, rows int, widths []int) (total, widest int, err error) {
	if len(widths) != c.size || rows < 0 {
		return 0, 0, fmt.Errorf("%v: %d widths for %d ranks, %d rows", kind, len(widths), c.size, rows)
	}
	for r, w := range widths {
		if w < 0 || w > c.link.Capacity() {
			return 0, 0, fmt.Errorf("%v: rank %d brings %d columns, a row of the slab holds %d", kind, r, w, c.link.Capacity())
		}
		total += w
		widest = max(widest, w)
	}
	if len(shard) != rows*widths[c.rank] {
		return 0, 0, fmt.Errorf("%v: shard has %d elements, [%d, %d] was announced", kind, len(shard), rows, widths[c.rank])
	}
	return total, widest, nil
}

// gathered is memory for a gather's result; two take turns.
func (c *Communicator) gathered(n int) []float32 {
	buf := &c.gather[c.op&1]
	if cap(*buf) < n {
		*buf = make([]float32, n)
	}
	return (*buf)[:n]
}

// Broadcast copies root's data to every rank, in place. Elements are copied as
// they are, so any 32-bit type may be viewed as float32.
func (c *Communicator) Broadcast(data []float32, root int) error {
	if root < 0 || root >= c.size {
		return fmt.Errorf("broadcast from rank %d of %d", root, c.size)
	}
	for lo := 0; lo < len(data) || lo == 0; lo += c.link.Capacity() {
		part := data[lo:min(lo+c.link.Capacity(), len(data))]
		if c.rank == root {
			copy(c.outbox(root), part)
		}
		if err := c.enter(transport.Broadcast, root, len(part)); err != nil {
			return err
		}
		if err := c.run(c.meeting); err != nil {
			return c.failed(transport.Broadcast, err)
		}
		if c.rank != root {
			copy(part, c.outbox(root))
		}
		c.leave()
	}
	return nil
}

// outbox is where a rank puts what others copy from it. It is not the Partial
// slab, so that a partial may be in the making meanwhile.
func (c *Communicator) outbox(rank int) []float32 {
	return c.link.Memory(transport.Scratch, rank, 0, c.op)
}
