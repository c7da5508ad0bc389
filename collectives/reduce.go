package collectives

import "github.com/octet-run/octet/collectives/transport"

// job is the work of one reduction. A zero weight means the plain form.
type job struct {
	op       uint32
	rows     int
	width    int
	residual []float32
	weight   []float32
	eps      float32
}

// chunkElements is how much of a sum one claim takes: enough that a claim costs
// little beside it, little enough that two cores share the usual sizes.
const chunkElements = 4096

// grain is the elements of one chunk. The fused form works on whole rows.
func (j *job) grain() int {
	if j.weight == nil {
		return chunkElements
	}
	return max(1, chunkElements/j.width) * j.width
}

// chunks is the number of chunks, at least one: even an operation without data
// has somebody finish it.
func (j *job) chunks() int {
	n := j.rows * j.width
	if n == 0 {
		return 1
	}
	return (n + j.grain() - 1) / j.grain()
}

func (c *Communicator) reduce() error {
	if c.direct {
		return c.reduceDirect()
	}
	if err := c.reduceCentral(); err != nil {
		return err
	}
	if c.job.weight != nil {
		copy(c.job.residual, c.common(transport.Common, len(c.job.residual)))
	}
	return nil
}

// reduceCentral: one counter of arrivals. The last to arrive offers the chunks of
// the sum to whoever is awake, and whoever finishes the last chunk wakes all.
func (c *Communicator) reduceCentral() error {
	op := c.job.op
	if c.crew.Arrive(op) {
		if err := c.link.Check(op); err != nil {
			return err
		}
		c.crew.Open(op)
		c.workOnJob()
	}
	return c.crew.AwaitFinish(op, c.help)
}

// workOnJob takes chunks of the current operation while there are any.
func (c *Communicator) workOnJob() bool {
	chunks := c.job.chunks()
	worked := false
	for {
		chunk, ok := c.crew.Claim(c.job.op, chunks)
		if !ok {
			return worked
		}
		c.sumChunk(chunk)
		c.crew.Finish(c.job.op, chunks)
		worked = true
	}
}

// sumChunk sums chunk into the group's common result.
func (c *Communicator) sumChunk(chunk int) {
	j := &c.job
	n := j.rows * j.width
	lo := chunk * j.grain()
	hi := min(lo+j.grain(), n)
	if lo >= hi {
		return
	}
	sum := c.common(transport.Common, n)[lo:hi]
	sumTree(sum, c.partials(lo, hi))
	if j.weight == nil {
		return
	}
	normed := c.common(transport.CommonNormed, n)[lo:hi]
	for at := 0; at < hi-lo; at += j.width {
		row := sum[at : at+j.width]
		addNormRow(normed[at:at+j.width], row, j.residual[lo+at:lo+at+j.width], j.weight, j.eps)
	}
}

// reduceDirect: every rank waits for every partial and sums all of it itself.
func (c *Communicator) reduceDirect() error {
	if err := c.awaitPosts(); err != nil {
		return err
	}
	j := &c.job
	n := j.rows * j.width
	sum := c.own(n)
	sumTree(sum, c.partials(0, n))
	if j.weight == nil {
		return nil
	}
	normed := c.ownNormed(n)
	for lo := 0; lo < n; lo += j.width {
		hi := lo + j.width
		addNormRow(normed[lo:hi], sum[lo:hi], j.residual[lo:hi], j.weight, j.eps)
	}
	copy(j.residual, sum)
	return nil
}

// partials is elements [lo, hi) of every rank's partial, in rank order.
func (c *Communicator) partials(lo, hi int) [][]float32 {
	for r := range c.sources {
		c.sources[r] = c.link.Memory(transport.Partial, r, 0, c.op)[lo:hi]
	}
	return c.sources
}

func (c *Communicator) result(n int) []float32 {
	if c.direct {
		return c.own(n)
	}
	return c.common(transport.Common, n)
}

func (c *Communicator) normed(n int) []float32 {
	if c.direct {
		return c.ownNormed(n)
	}
	return c.common(transport.CommonNormed, n)
}

func (c *Communicator) own(n int) []float32 {
	return c.link.Memory(transport.Result, c.rank, 0, c.op)[:n]
}

func (c *Communicator) ownNormed(n int) []float32 {
	return c.link.Memory(transport.Inbox, c.rank, c.rank, c.op)[:n]
}

func (c *Communicator) common(region transport.Region, n int) []float32 {
	return c.link.Memory(region, 0, 0, c.op)[:n]
}
