package boxsim

import (
	"fmt"
	"slices"

	"github.com/octet-run/octet/collectives"
	"github.com/octet-run/octet/collectives/topology"
	"github.com/octet-run/octet/collectives/transport"
)

// barrierTag is the first tag of the rounds of flags around a program.
const barrierTag = 1 << 16

// gpus is a group of GPUs that executes a program.
type gpus struct {
	clock
	config *Config
	device *topology.DeviceRates
	wires  *wires
	ranks  []*gpu
	flags  map[flagKey]bool
}

type flagKey struct{ from, to, tag int }

// signal is a flag that is to be raised.
type signal struct {
	flagKey
	inData bool // arrives with the last of the data, needs no acknowledgement
}

// gpu is one rank's kernel.
type gpu struct {
	rank     int
	steps    []collectives.Step
	next     int
	began    float64
	ended    float64
	waiting  *flagKey
	flight   map[int]int // puts under way, by peer
	signals  []signal    // to be raised when the puts to that peer are through
	incoming []flow      // what peers have left in host memory, not read yet
}

func runGPUs(c *Config, programs [][]collectives.Step) (Result, error) {
	w, err := newWires(c)
	if err != nil {
		return Result{}, err
	}
	g := &gpus{config: c, device: c.Box.Fabric.Device, wires: w, flags: map[flagKey]bool{}}
	g.extra = func(f *flow) []*link { return w.regimes(f, g.clock.flows) }
	for r, steps := range programs {
		k := &gpu{rank: r, steps: bracket(steps, c.Stack.Barriers, r, len(programs)), flight: map[int]int{}, ended: -1}
		if len(c.LateUS) > 0 {
			k.began = c.LateUS[r]
		}
		g.ranks = append(g.ranks, k)
		g.after(k.began+g.startUS(), func() { g.advance(k) })
	}
	g.run()
	return g.result()
}

// startUS is from the call until a kernel's first instruction.
func (g *gpus) startUS() float64 {
	if g.config.Stack.Plain {
		return g.device.PlainLaunchUS + g.config.Stack.BaseUS
	}
	return g.device.GraphLaunchUS + g.config.Stack.BaseUS
}

func (g *gpus) result() (Result, error) {
	var r Result
	var last float64
	for _, k := range g.ranks {
		if k.ended < 0 {
			return Result{}, fmt.Errorf("rank %d waits for ever in step %d: %v", k.rank, k.next, k.steps[k.next])
		}
		last = max(last, k.began)
	}
	r.FastestUS = g.ranks[0].ended - g.ranks[0].began
	for _, k := range g.ranks {
		r.US = max(r.US, k.ended-last)
		r.SlowestUS = max(r.SlowestUS, k.ended-k.began)
		r.FastestUS = min(r.FastestUS, k.ended-k.began)
	}
	return r, nil
}

// bracket puts rounds of flags before and after a program.
func bracket(steps []collectives.Step, barriers, rank, ranks int) []collectives.Step {
	round := func(i int) []collectives.Step {
		var out []collectives.Step
		for _, do := range []collectives.Action{collectives.Signal, collectives.Wait} {
			for d := 1; d < ranks; d++ {
				out = append(out, collectives.Step{Do: do, Peer: (rank + d) % ranks, Tag: barrierTag + i, Phase: transport.Arrive})
			}
		}
		return out
	}
	out := slices.Clone(steps)
	for i := range barriers {
		if i%2 == 0 {
			out = append(round(i), out...)
		} else {
			out = append(out, round(i)...)
		}
	}
	return out
}

// advance takes steps of a rank until one takes time.
func (g *gpus) advance(k *gpu) {
	for k.next < len(k.steps) {
		s := k.steps[k.next]
		switch s.Do {
		case collectives.Put:
			g.put(k, s)
		case collectives.Signal:
			g.signal(k, flagKey{k.rank, s.Peer, s.Tag}, s.Tag >= barrierTag || g.config.Stack.inData(false))
		case collectives.Wait:
			key := flagKey{s.Peer, k.rank, s.Tag}
			if !g.flags[key] {
				k.waiting = &key
				return
			}
			// Flags that came while another was waited for have been seen too.
		default:
			if len(k.incoming) > 0 {
				g.fetch(k)
				return
			}
			g.finish(k, g.local(s))
			return
		}
		g.traced(k)
		k.next++
	}
	if len(k.incoming) > 0 {
		g.fetch(k)
		return
	}
	k.ended = g.now
}

// finish ends the current step after d and goes on.
func (g *gpus) finish(k *gpu, d float64) {
	g.after(d, func() {
		g.traced(k)
		k.next++
		g.advance(k)
	})
}

func (g *gpus) traced(k *gpu) {
	if g.config.Trace == nil || k.steps[k.next].Tag >= barrierTag {
		return
	}
	before := 0 // the steps of barriers in front are no part of the program
	for before < len(k.steps) && k.steps[before].Tag >= barrierTag {
		before++
	}
	g.config.Trace(Event{AtUS: g.now, Rank: k.rank, Step: k.next - before, Do: k.steps[k.next].Do})
}

// local is what a step takes that stays within a GPU.
func (g *gpus) local(s collectives.Step) float64 {
	var bytes float64
	for _, from := range append([]collectives.Place{s.To}, s.From...) {
		bytes += float64((s.Hi - s.Lo) * g.elementBytes(from))
	}
	us := bytes / (g.device.ReduceGBps * bytesPerUS)
	if !g.config.Stack.Streamed {
		us += g.device.PhaseUS
	}
	return us
}

// elementBytes is the size of a value in a place.
func (g *gpus) elementBytes(p collectives.Place) int {
	if p.Region == transport.Scratch {
		return g.config.Stack.IslandBytes
	}
	return g.config.Stack.WireBytes
}

// put starts the transfer of a step and does not wait for it.
func (g *gpus) put(k *gpu, s collectives.Step) {
	bytes := float64((s.Hi - s.Lo) * g.elementBytes(s.From[0]))
	inData := g.config.Stack.inData(s.Packet)
	if inData {
		bytes *= g.config.Stack.FlagBytes
	}
	f := g.wires.flow(k.rank, s.Peer, bytes)
	if g.config.Stack.Host && !inData { // to host memory; the peer reads it once it knows
		f = g.wires.toHost(k.rank, s.Peer, bytes)
		g.ranks[s.Peer].expect(g.wires.fromHost(k.rank, s.Peer, bytes))
	}
	k.flight[s.Peer]++
	f.done = func() {
		k.flight[s.Peer]--
		g.release(k, s.Peer)
	}
	g.start(f)
	if s.Packet {
		g.signal(k, flagKey{k.rank, s.Peer, s.Tag}, inData)
	}
}

func (k *gpu) expect(f *flow) { k.incoming = append(k.incoming, *f) }

// signal raises a flag once the puts to its rank are through.
func (g *gpus) signal(k *gpu, key flagKey, inData bool) {
	k.signals = append(k.signals, signal{key, inData})
	g.release(k, key.to)
}

// release lets the flags to a peer go whose data is through.
func (g *gpus) release(k *gpu, peer int) {
	if k.flight[peer] > 0 {
		return
	}
	kept := k.signals[:0]
	for _, s := range k.signals {
		if s.to != peer {
			kept = append(kept, s)
			continue
		}
		d := g.wires.latency(s.from, s.to)
		if !s.inData {
			d *= 2 // the flag waits until the data is acknowledged
		}
		g.after(d, func() { g.raise(s.flagKey) })
	}
	k.signals = kept
}

func (g *gpus) raise(key flagKey) {
	g.flags[key] = true
	k := g.ranks[key.to]
	if k.waiting != nil && *k.waiting == key {
		k.waiting = nil
		g.finish(k, g.config.Stack.StepUS+g.device.PollUS)
	}
}

// fetch reads what peers have left in host memory, all of it at once.
func (g *gpus) fetch(k *gpu) {
	left := len(k.incoming)
	for i := range k.incoming {
		f := k.incoming[i]
		f.done = func() {
			if left--; left == 0 {
				g.after(g.wires.latency(f.from, f.to), func() { g.advance(k) })
			}
		}
		g.start(&f)
	}
	k.incoming = nil
}
