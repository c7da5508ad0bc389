package boxsim

import (
	"fmt"
	"math"
	"slices"

	"github.com/octet-run/octet/collectives"
	"github.com/octet-run/octet/collectives/topology"
)

const (
	// operations is how many run back to back. The first ones find everybody fresh;
	// the time of one is taken over the second half.
	operations = 64
	// yieldsBeforeSleep is how often a rank that shares its core gives it away before
	// it sleeps on a futex, as transport does.
	yieldsBeforeSleep = 32

	pageBytes     = 4 << 10
	hugePageBytes = 2 << 20
)

// processes is a group of processes on the cores of one machine, each bound to one.
// A line that one core writes for another costs no more here than one that both read,
// so packets and two-shot, which push, come out too fast: up to three times at 64 KiB.
type processes struct {
	clock
	config *Config
	cpu    *topology.CPURates
	cores  []*core
	ranks  []*process

	flags   map[flagKey]int // operation up to which a flag is raised
	posts   []int
	arrived int
	open    int // operation whose units are offered
	claimed int
	done    int
	ended   int // operation of which all units are done
}

// core runs one process at a time.
type core struct {
	index    int
	switches int // so far
	programs [][]collectives.Step
	working  int        // bytes that its processes touch
	mapped   int        // the same, counted for each of them: translations are not shared
	queue    []*process // runnable, besides the one that runs
	running  *process
	idle     bool // the running one spins, nobody else can run
}

// process is one rank.
type process struct {
	rank   int
	core   *core
	steps  []collectives.Step
	next   int
	op     int // from 1
	yields int
	asleep bool
	in     bool      // has entered the operation
	done   []float64 // when each operation ended
}

func runProcesses(c *Config, programs [][]collectives.Step) (Result, error) {
	p := &processes{
		config: c, cpu: c.Box.Fabric.CPU, flags: map[flagKey]int{},
		posts: make([]int, len(programs)),
	}
	for i := range p.cpu.Cores {
		p.cores = append(p.cores, &core{index: i})
	}
	for r, steps := range programs {
		home := p.cores[r*len(p.cores)/len(programs)]
		k := &process{rank: r, core: home, steps: steps, op: 1}
		p.ranks = append(p.ranks, k)
		home.programs = append(home.programs, steps)
		home.mapped += workingBytes(steps)
		late := 0.0
		if len(c.LateUS) > 0 {
			late = c.LateUS[r]
		}
		p.after(late, func() { p.runnable(k) })
	}
	for _, c := range p.cores {
		c.working = workingBytes(c.programs...)
	}
	p.run()
	return p.result()
}

// result is the mean of the second half of the operations.
func (p *processes) result() (Result, error) {
	const from = operations/2 - 1
	var r Result
	for _, k := range p.ranks {
		if len(k.done) < operations {
			return Result{}, fmt.Errorf("rank %d waits for ever in step %d: %v", k.rank, k.next, k.steps[k.next])
		}
		took := (k.done[operations-1] - k.done[from]) / (operations - 1 - from)
		r.US = max(r.US, took)
		if r.FastestUS == 0 || took < r.FastestUS {
			r.FastestUS = took
		}
	}
	r.SlowestUS = r.US
	return r, nil
}

// runnable puts a process in line for its core.
func (p *processes) runnable(k *process) {
	c := k.core
	if c.running == nil {
		c.running = k
		p.after(0, func() { p.advance(k) })
		return
	}
	c.queue = append(c.queue, k)
	if c.idle {
		p.poke(c, 0)
	}
}

// poke makes a core that spins look again.
func (p *processes) poke(c *core, d float64) {
	if c.idle {
		c.idle = false
		k := c.running
		p.after(d, func() { p.advance(k) })
	}
}

// changed tells all spinning cores that memory has changed.
func (p *processes) changed() {
	for _, c := range p.cores {
		p.poke(c, p.cpu.LineUS)
	}
}

// leave gives the core to the next process.
func (p *processes) leave(c *core, d float64) {
	c.running = nil
	if len(c.queue) == 0 {
		return
	}
	c.running, c.queue = c.queue[0], c.queue[1:]
	next := c.running
	p.after(d, func() { p.advance(next) })
}

// advance takes a process's next step.
func (p *processes) advance(k *process) {
	if k.next == len(k.steps) {
		p.completed(k)
		return
	}
	if !k.in {
		k.in = true
		p.after(p.cpu.EnterUS, func() { p.advance(k) })
		return
	}
	s := k.steps[k.next]
	switch s.Do {
	case collectives.Signal:
		p.step(k, p.raise(k, s))
	case collectives.Wait:
		p.wait(k)
	case collectives.LastArrival:
		p.arrive(k)
	case collectives.Put:
		p.after(p.move(k, s, false), func() {
			if s.Packet {
				p.step(k, p.raise(k, s))
				return
			}
			p.step(k, 0)
		})
	default:
		p.step(k, p.move(k, s, false))
	}
}

// raise raises the flag of a step and returns what waking its sleepers takes.
func (p *processes) raise(k *process, s collectives.Step) float64 {
	if s.Peer == collectives.Everyone {
		p.posts[k.rank] = k.op
	} else {
		p.flags[flagKey{k.rank, s.Peer, s.Tag}] = k.op
	}
	p.changed()
	return p.wake()
}

// step ends the current step after d.
func (p *processes) step(k *process, d float64) {
	p.after(d, func() {
		p.traced(k, k.next)
		k.next++
		k.yields = 0
		p.advance(k)
	})
}

func (p *processes) traced(k *process, step int) {
	if p.config.Trace != nil {
		p.config.Trace(Event{AtUS: p.now, Rank: k.rank, Op: k.op - 1, Step: step, Do: k.steps[step].Do})
	}
}

func (p *processes) completed(k *process) {
	k.done = append(k.done, p.now)
	k.next, k.in = 0, false
	k.op++
	if k.op > operations {
		p.leave(k.core, p.switchUS(k.core))
		return
	}
	p.advance(k)
}

// satisfied reports whether the wait that a process is in is over.
func (p *processes) satisfied(k *process) bool {
	s := k.steps[k.next]
	switch {
	case s.Peer == collectives.Everyone:
		return p.ended >= k.op
	case s.Tag == collectives.Posted:
		return p.posts[s.Peer] >= k.op
	}
	return p.flags[flagKey{s.Peer, k.rank, s.Tag}] >= k.op
}

// wait goes on if it can, helps if there is work, else gives the core away.
func (p *processes) wait(k *process) {
	switch s := k.steps[k.next]; {
	case p.satisfied(k) && s.Peer == collectives.Everyone:
		p.step(k, 0)
	case p.satisfied(k) && p.ranks[s.Peer].core == k.core:
		p.step(k, 0)
	case p.satisfied(k):
		p.step(k, p.cpu.LineUS)
	case s.Peer == collectives.Everyone && p.claim(k):
	case len(k.core.queue) == 0:
		k.core.idle = true
	case k.yields < yieldsBeforeSleep:
		k.yields++
		k.core.queue = append(k.core.queue, k)
		p.leave(k.core, p.switchUS(k.core))
	default:
		k.asleep = true
		p.leave(k.core, p.cpu.SleepUS+p.switchUS(k.core))
	}
}

// wake makes the sleepers runnable whose wait is over and returns what that takes.
func (p *processes) wake() (us float64) {
	for _, k := range p.ranks {
		if k.asleep && p.satisfied(k) {
			k.asleep, k.yields = false, 0
			us += p.cpu.WakeUS
			p.after(us, func() { p.runnable(k) })
		}
	}
	return us
}

// units is the steps with which the units of a program begin.
func (k *process) units() []int {
	var first []int
	for i, s := range k.steps {
		if s.Do == collectives.LastArrival {
			first = append(first, i+1)
		}
	}
	return first
}

// arrive counts a process in. The last one offers the units and begins with them.
func (p *processes) arrive(k *process) {
	units := k.units()
	last := units[len(units)-1]
	k.next = last + k.steps[last-1].Count
	p.arrived++
	if p.arrived == len(p.ranks) {
		p.arrived = 0
		p.open, p.claimed, p.done = k.op, 0, 0
		p.changed()
	}
	p.after(p.cpu.ClaimUS, func() { p.advance(k) })
}

// claim takes a unit of the process's operation if one is left.
func (p *processes) claim(k *process) bool {
	units := k.units()
	if p.open != k.op || p.claimed == len(units) {
		return false
	}
	first := units[p.claimed]
	p.claimed++
	d := p.cpu.ClaimUS
	for _, s := range k.steps[first : first+k.steps[first-1].Count] {
		d += p.move(k, s, true)
	}
	p.after(d, func() {
		p.traced(k, first-1)
		for i := range k.steps[first-1].Count {
			p.traced(k, first+i)
		}
		p.done++
		if p.done == len(units) {
			p.ended = k.op
			p.changed()
			p.after(p.wake(), func() { p.advance(k) })
			return
		}
		p.advance(k)
	})
	return true
}

// move is the time of a step that reads and writes memory.
func (p *processes) move(k *process, s collectives.Step, shared bool) float64 {
	bytes := float64((len(s.From) + 1) * s.Bytes())
	tiers := p.cpu.Own
	if shared {
		tiers = p.cpu.Shared
	}
	return bytes/(tierFor(tiers, k.core.working).GBps*bytesPerUS) + p.missUS(k.core, bytes)
}

// missUS is the time of the translations that miss while a core moves so many bytes.
func (p *processes) missUS(c *core, bytes float64) float64 {
	page := float64(pageBytes)
	if p.cpu.HugePages {
		page = hugePageBytes
	}
	wanted := float64(c.mapped) / page
	if wanted <= float64(p.cpu.TLBPages) {
		return 0
	}
	return (1 - float64(p.cpu.TLBPages)/wanted) * bytes / page * p.cpu.PageUS
}

// switchUS is the time of a core's next switch: half to one and a half times the
// mean, in a fixed sequence without period. If all took the same, the cores would fall
// into step, and no process would ever be waited for while it is switched to.
func (p *processes) switchUS(c *core) float64 {
	const goldenRatio, rootOfTwo = 0.6180339887498949, 0.4142135623730951
	c.switches++
	_, x := math.Modf(float64(c.switches)*goldenRatio + float64(c.index)*rootOfTwo)
	return p.cpu.SwitchUS * (0.5 + x)
}

// workingBytes is the memory that some programs touch, in two operations in turn.
func workingBytes(programs ...[]collectives.Step) int {
	type part struct {
		collectives.Place
		lo, hi int
	}
	touched := map[part]bool{}
	bytes := 0
	for _, steps := range programs {
		for _, s := range steps {
			if s.Hi == s.Lo {
				continue
			}
			for _, place := range append(s.From[:len(s.From):len(s.From)], s.To) {
				if p := (part{place, s.Lo, s.Hi}); !touched[p] {
					touched[p] = true
					bytes += 2 * s.Bytes()
				}
			}
		}
	}
	return bytes
}

func tierFor(tiers []topology.Tier, bytes int) topology.Tier {
	i := slices.IndexFunc(tiers, func(t topology.Tier) bool { return t.Bytes == 0 || bytes <= t.Bytes })
	if i < 0 {
		return tiers[len(tiers)-1]
	}
	return tiers[i]
}
