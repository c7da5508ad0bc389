package speculation

import (
	"math/bits"
	"slices"
	"sort"
)

// Cost is what rounds were measured to take on this box: the verify pass by its
// rows, the EAGLE-3 draft by its steps, both apart for each doubling of the
// context. Times are in any one unit. One Cost serves a whole group; the zero value
// is ready.
type Cost struct {
	ranges [contextRanges]struct{ verify, draft curve }
}

// contextRanges: up to 511 positions, then one range for each doubling.
const (
	contextRanges = 16
	firstRange    = 512
)

func rangeOf(context int) int {
	return min(bits.Len(uint(max(context, 0)/firstRange)), contextRanges-1)
}

// Observe takes the measurement of a round: committed positions and rows of the
// verify pass over all sequences, the largest number of EAGLE-3 draft steps
// (0: none), and the times.
func (c *Cost) Observe(context, rows, steps int, verify, draft float64) {
	r := &c.ranges[rangeOf(context)]
	r.verify.observe(rows, verify)
	if steps > 0 {
		r.draft.observe(steps, draft)
	}
}

// Measured says that there is a measurement to go by at that context.
func (c *Cost) Measured(context int) bool {
	return c.ranges[rangeOf(context)].verify.settled()
}

// Verify estimates a verify pass of that many rows.
func (c *Cost) Verify(context, rows int) float64 {
	return c.ranges[rangeOf(context)].verify.at(rows)
}

// Draft estimates a draft of that many steps. What was never tried costs nothing:
// trying it is how to find out.
func (c *Cost) Draft(context, steps int) float64 {
	draft := &c.ranges[rangeOf(context)].draft
	if steps == 0 || len(draft.points) == 0 {
		return 0
	}
	return draft.at(steps)
}

// curve is a measured function of a count, linear between what was measured.
type curve struct {
	points []point // by rising x
	count  int     // measurements of all points
}

type point struct {
	x     int
	y     float64 // smoothed
	count int     // measurements of this point
	last  int     // the curve's count at the last of them
}

const (
	// A new measurement weighs smoothing once there are a few, and more the longer
	// the point has not been measured, up to staleWeight after staleAfter others.
	smoothing   = 0.1
	staleWeight = 0.6
	staleAfter  = 100
	// outlier is how many times the estimate a single measurement may count as:
	// one descheduled round is no news about the box.
	outlier = 2.0
	// settledCount is how many measurements a point needs: the first of a size
	// may include one-time work.
	settledCount = 2
)

func (c *curve) observe(x int, y float64) {
	i := sort.Search(len(c.points), func(i int) bool { return c.points[i].x >= x })
	c.count++
	if i == len(c.points) || c.points[i].x != x {
		c.points = slices.Insert(c.points, i, point{x: x, y: y, count: 1, last: c.count})
		return
	}
	p := &c.points[i]
	stale := staleWeight * min(1, float64(c.count-p.last)/staleAfter)
	p.last = c.count
	p.count++
	if p.count == settledCount {
		p.y = min(p.y, y)
		return
	}
	p.y += max(smoothing, stale, 1/float64(p.count)) * (min(y, outlier*p.y) - p.y)
}

func (c *curve) settled() bool {
	return slices.ContainsFunc(c.points, func(p point) bool { return p.count >= settledCount })
}

// at interpolates. Beyond the ends it goes on with the slope of the last piece,
// never below the end's value to the right nor below a proportional share to the left.
func (c *curve) at(x int) float64 {
	n := len(c.points)
	i := sort.Search(n, func(i int) bool { return c.points[i].x >= x })
	switch {
	case i < n && c.points[i].x == x:
		return c.points[i].y
	case n == 1:
		return c.points[0].y
	case i == 0:
		first := c.points[0]
		return max(line(first, c.points[1], x), first.y*float64(x)/float64(first.x))
	case i == n:
		last := c.points[n-1]
		return max(line(c.points[n-2], last, x), last.y)
	}
	return line(c.points[i-1], c.points[i], x)
}

func line(a, b point, x int) float64 {
	return a.y + (b.y-a.y)*float64(x-a.x)/float64(b.x-a.x)
}
