package collectives

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/octet-run/octet/collectives/transport"
)

// Probe says how thoroughly paths are probed. The zero value suits start-up.
type Probe struct {
	Bytes int // size of the transfers; 0 means 256 KiB, at most what the slab holds
	Pings int // flags sent each way for the latency, even; 0 means 16
	Box   string
}

// probeTag and ackTag are the flags of a probe.
const (
	probeTag = iota
	ackTag
)

// transfers is how often a transfer is timed; the best counts. It is odd: see Probe.
const transfers = 3

// poison is what memory holds before it is written: no value that is sent.
var poison = math.Float32frombits(0xffc0dead)

// Probe measures every directed pair on the memory and the flags that the
// operations use. All ranks call it together. The verdict is equal on all; a path
// that delivers wrong data, however fast, is refused in it.
func (c *Communicator) Probe(p Probe) (Verdict, error) {
	if p.Pings == 0 {
		p.Pings = 16
	}
	if p.Bytes == 0 {
		p.Bytes = 256 << 10
	}
	// Post flags jump over the exchanges of a pair. By an odd distance, so that the
	// descriptors of two barriers in a row do not share a buffer.
	p.Pings += p.Pings & 1
	n := min(p.Bytes/4, c.link.Capacity())
	pr := prober{c: c, n: n, pings: p.Pings, pairs: make([]Pair, c.size*c.size)}
	for from := range c.size {
		for to := range c.size {
			pr.pairs[from*c.size+to] = Pair{From: from, To: to}
			if from == to {
				continue
			}
			if err := pr.alone(from, to); err != nil {
				return Verdict{}, err
			}
		}
	}
	for shift := 1; shift < c.size; shift++ {
		if err := pr.loaded(shift); err != nil {
			return Verdict{}, err
		}
	}
	return pr.verdict(p.Box)
}

// prober is one rank's part in a probe. pairs[from*size+to] is filled in by the
// rank that measured it: correctness and pull by the reader, the rest by the writer.
type prober struct {
	c     *Communicator
	n     int
	pings int
	pairs []Pair
}

// alone probes one pair while the other ranks wait in the barrier.
func (pr *prober) alone(from, to int) error {
	c := pr.c
	if err := c.Barrier(); err != nil {
		return err
	}
	var err error
	switch c.rank {
	case from:
		err = pr.write(to)
	case to:
		err = pr.read(from)
	}
	if err != nil {
		return c.failed(transport.Barrier, err)
	}
	// Each exchange is an operation; those who took no part count them too.
	c.op += uint32(1 + pr.pings + transfers)
	return nil
}

// write is the writer's side: data for correctness, pings, a timed transfer.
func (pr *prober) write(to int) error {
	c, op := pr.c, pr.c.op
	pair := &pr.pairs[c.rank*c.size+to]
	if err := c.link.Await(to, ackTag, op, transport.Arrive); err != nil { // poisoned
		return err
	}
	fillPattern(c.link.Memory(transport.Inbox, to, c.rank, op)[:pr.n], c.rank, to, pushed)
	fillPattern(c.link.Memory(transport.Scratch, c.rank, 0, op)[:pr.n], c.rank, to, pulled)
	c.link.Signal(to, probeTag, op)

	trips := make([]time.Duration, pr.pings)
	for i := range trips {
		op++
		begin := time.Now()
		c.link.Signal(to, probeTag, op)
		if err := c.link.Await(to, ackTag, op, transport.Exchange); err != nil {
			return err
		}
		trips[i] = time.Since(begin)
	}
	slices.Sort(trips)
	pair.Latency = trips[len(trips)/2] / 2

	// Between the buffers of the pattern: their pages are there.
	source := c.link.Memory(transport.Scratch, c.rank, 0, c.op)[:pr.n]
	target := c.link.Memory(transport.Inbox, to, c.rank, c.op)[:pr.n]
	for range transfers {
		op++
		begin := time.Now()
		copy(target, source)
		c.link.Signal(to, probeTag, op)
		if err := c.link.Await(to, ackTag, op, transport.Gather); err != nil {
			return err
		}
		pair.Push = max(pair.Push, gbps(pr.n, time.Since(begin)))
	}
	return nil
}

// read is the reader's side.
func (pr *prober) read(from int) error {
	c, op := pr.c, pr.c.op
	pair := &pr.pairs[from*c.size+c.rank]
	inbox := c.link.Memory(transport.Inbox, c.rank, from, op)[:pr.n]
	for i := range inbox {
		inbox[i] = poison
	}
	c.link.Signal(from, ackTag, op)
	if err := c.link.Await(from, probeTag, op, transport.Scatter); err != nil {
		return err
	}
	local, remote := c.link.Memory(transport.Normed, c.rank, 0, op)[:pr.n], c.link.Memory(transport.Scratch, from, 0, op)[:pr.n]
	pair.Pull = timedCopy(local, remote)
	pair.Refused = checkPattern(inbox, from, c.rank, pushed)
	if pair.Refused == "" {
		pair.Refused = checkPattern(local, from, c.rank, pulled)
	}
	for range pr.pings + transfers {
		op++
		if err := c.link.Await(from, probeTag, op, transport.Exchange); err != nil {
			return err
		}
		c.link.Signal(from, ackTag, op)
	}
	return nil
}

// loaded times a transfer of every rank at once, each to the one shift after it,
// written by its source, then read by its destination.
func (pr *prober) loaded(shift int) error {
	c := pr.c
	if err := c.Barrier(); err != nil {
		return err
	}
	to, from := (c.rank+shift)%c.size, (c.rank+c.size-shift)%c.size
	source := c.link.Memory(transport.Scratch, c.rank, 0, c.op)
	pr.pairs[c.rank*c.size+to].LoadedPush = timedCopy(c.link.Memory(transport.Inbox, to, c.rank, c.op)[:pr.n], source)
	if err := c.Barrier(); err != nil {
		return err
	}
	source = c.link.Memory(transport.Scratch, from, 0, c.op)
	pr.pairs[from*c.size+c.rank].LoadedPull = timedCopy(c.link.Memory(transport.Normed, c.rank, 0, c.op)[:pr.n], source)
	return nil
}

// timedCopy is the best rate, in GB/s, of a copy whose pages are there.
func timedCopy(to, from []float32) float64 {
	copy(to, from)
	var best float64
	for range transfers {
		begin := time.Now()
		copy(to, from)
		best = max(best, gbps(len(to), time.Since(begin)))
	}
	return best
}

// verdict puts together what all ranks measured.
func (pr *prober) verdict(box string) (Verdict, error) {
	c := pr.c
	const fields = 6
	mine := make([]float32, 0, len(pr.pairs)*fields)
	for _, p := range pr.pairs {
		mine = append(mine, refusalCode(p.Refused), float32(p.Latency), float32(p.Push), float32(p.Pull),
			float32(p.LoadedPush), float32(p.LoadedPull))
	}
	widths := make([]int, c.size)
	for r := range widths {
		widths[r] = len(mine)
	}
	if len(mine) > c.link.Capacity() {
		return Verdict{}, fmt.Errorf("probe of %d ranks: the slab of %d elements is too small", c.size, c.link.Capacity())
	}
	all, err := c.AllGather(mine, 1, widths)
	if err != nil {
		return Verdict{}, err
	}
	v := Verdict{Box: box, Ranks: c.size}
	for _, p := range pr.pairs {
		if p.From == p.To {
			continue
		}
		index := (p.From*c.size + p.To) * fields
		writer, reader := all[p.From*len(mine)+index:], all[p.To*len(mine)+index:]
		v.Pairs = append(v.Pairs, Pair{
			From: p.From, To: p.To, Refused: refusalText(reader[0]),
			Latency: time.Duration(writer[1]), Push: float64(writer[2]), Pull: float64(reader[3]),
			LoadedPush: float64(writer[4]), LoadedPull: float64(reader[5]),
		})
	}
	return v, nil
}

func gbps(elements int, d time.Duration) float64 {
	return float64(4*elements) / float64(max(d, 1))
}
