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
	// credit is the time that probes may still cost. It is the group's, so that many
	// short requests do not probe more than one long one.
	credit float64
	opened bool // credit was given to begin with
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

// Before anything else is known, a row is taken to add rowGuess to a verify pass of
// one row, and a draft step to cost stepGuess of it.
const (
	rowGuess  = 0.02
	stepGuess = 0.1
)

// Verify estimates a verify pass of that many rows. known is false where that is a
// guess: more rows than were ever measured.
func (c *Cost) Verify(context, rows int) (time float64, known bool) {
	verify := &c.ranges[rangeOf(context)].verify
	points := verify.points
	if last := points[len(points)-1]; len(points) == 1 && rows > last.x {
		return last.y * (1 + rowGuess*float64(rows-last.x)), false
	}
	return verify.at(rows), rows <= points[len(points)-1].x
}

// Draft estimates a draft of that many steps, of which none cost nothing.
func (c *Cost) Draft(context, steps int) (time float64, known bool) {
	r := &c.ranges[rangeOf(context)]
	points := r.draft.points
	switch {
	case steps == 0:
		return 0, true
	case len(points) == 0:
		return r.verify.at(1) * stepGuess * float64(steps), false
	case steps <= points[0].x || len(points) == 1:
		return points[0].y * float64(steps) / float64(points[0].x), steps <= points[0].x
	}
	return r.draft.at(steps), steps <= points[len(points)-1].x
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
// There must be a point.
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
