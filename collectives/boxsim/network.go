package boxsim

import "math"

// bytesPerUS is 10^9 bytes a second in bytes per microsecond.
const bytesPerUS = 1e3

// link is something that flows share.
type link struct {
	gbps float64
}

// flow is a transfer in progress.
type flow struct {
	from, to int
	left     float64 // bytes
	cap      float64 // GB/s, of the path alone
	links    []*link
	posted   bool // stores to a peer, which a switch may let collapse
	done     func()

	rate float64 // GB/s
}

// share gives every flow its max-min fair rate: all rates rise together until a
// link is full or a flow has its cap; what that stops keeps its rate, the others go
// on. extra adds links that hold while the present set of flows runs.
func share(flows []*flow, extra func(*flow) []*link) {
	type load struct {
		left float64
		open int
	}
	loads := map[*link]*load{}
	var order []*load // not the map's: sums depend on it
	on := make([][]*load, len(flows))
	for i, f := range flows {
		links := f.links
		if extra != nil {
			links = append(links[:len(links):len(links)], extra(f)...)
		}
		for _, l := range links {
			if loads[l] == nil {
				loads[l] = &load{left: l.gbps}
				order = append(order, loads[l])
			}
			loads[l].open++
			on[i] = append(on[i], loads[l])
		}
	}
	open := make([]int, len(flows))
	for i := range open {
		open[i] = i
	}
	for len(open) > 0 {
		level := math.Inf(1)
		for _, l := range order {
			if l.open > 0 {
				level = min(level, l.left/float64(l.open))
			}
		}
		for _, i := range open {
			level = min(level, flows[i].cap)
		}
		var stopped, rising []int
		for _, i := range open {
			full := flows[i].cap <= level
			for _, l := range on[i] {
				full = full || l.left/float64(l.open) <= level*(1+1e-9)
			}
			if full {
				stopped = append(stopped, i)
			} else {
				rising = append(rising, i)
			}
		}
		for _, i := range stopped {
			flows[i].rate = level
			for _, l := range on[i] {
				l.left -= level
				l.open--
			}
		}
		open = rising
	}
}

// clock runs timers and flows in virtual time.
type clock struct {
	now    float64
	flows  []*flow
	timers []timer
	seq    int
	extra  func(*flow) []*link
}

type timer struct {
	at  float64
	seq int
	do  func()
}

// after calls do when d microseconds have passed.
func (c *clock) after(d float64, do func()) {
	c.timers = append(c.timers, timer{c.now + d, c.seq, do})
	c.seq++
}

// start adds a flow. An empty one is done at once.
func (c *clock) start(f *flow) {
	if f.left <= 0 {
		c.after(0, f.done)
		return
	}
	c.flows = append(c.flows, f)
}

// run lets time pass until nothing is left to happen.
func (c *clock) run() {
	for len(c.timers) > 0 || len(c.flows) > 0 {
		if c.fire() {
			continue
		}
		share(c.flows, c.extra)
		until := math.Inf(1)
		for _, t := range c.timers {
			until = min(until, t.at)
		}
		for _, f := range c.flows {
			until = min(until, c.now+f.left/(f.rate*bytesPerUS))
		}
		c.pass(until)
	}
}

// fire does the first timer that is due, if one is.
func (c *clock) fire() bool {
	first := -1
	for i, t := range c.timers {
		if t.at <= c.now && (first < 0 || t.at < c.timers[first].at || t.at == c.timers[first].at && t.seq < c.timers[first].seq) {
			first = i
		}
	}
	if first < 0 {
		return false
	}
	do := c.timers[first].do
	c.timers = append(c.timers[:first], c.timers[first+1:]...)
	do()
	return true
}

// pass moves all flows on to a time and ends those that are through.
func (c *clock) pass(until float64) {
	var running, ended []*flow
	for _, f := range c.flows {
		f.left -= (until - c.now) * f.rate * bytesPerUS
		if f.left <= 1e-6 {
			ended = append(ended, f)
		} else {
			running = append(running, f)
		}
	}
	c.now, c.flows = until, running
	for _, f := range ended {
		f.done()
	}
}
