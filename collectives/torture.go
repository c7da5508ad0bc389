package collectives

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/octet-run/octet/collectives/transport"
	"github.com/octet-run/octet/kernels/cpu"
)

// Control is a guarantee of the transport that a torture takes away, to show that
// its checks notice.
type Control string

// The controls.
const (
	Sound             Control = ""
	RendezvousRemoved Control = "rendezvous removed"
	BarrierOpensEarly Control = "barrier opened early"
	OneBuffer         Control = "one buffer instead of two"
)

// Controls is all that must be caught.
func Controls() []Control { return []Control{RendezvousRemoved, BarrierOpensEarly, OneBuffer} }

// RankTorture is one rank's part in a torture: operations of random form, size and
// algorithm, with stalls at random, every result held against the contract bit for
// bit. All ranks run it with equal values.
type RankTorture struct {
	Seed       uint64
	Operations int // all-reduces
	Control    Control
}

const (
	tortureElements = 1 << 16          // of the largest payload
	tortureTimeout  = 10 * time.Minute // after which an operation counts as hung
	stallOdds       = 64               // a rank stalls at one in so many flags
	stallMost       = 200 * 1000       // nanoseconds
	tortureRanges   = 64               // of sizes, each with an algorithm of its own
	tortureEps      = float32(1e-5)    // of the norm
)

// Run returns nil if every result had the bits of the contract.
func (t RankTorture) Run(group *transport.Group, rank int) error {
	m, err := group.Attach(rank, transport.Polling{Timeout: tortureTimeout})
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(t.Seed, 1)) // the same on all ranks
	shape := tortureShape(rng, group.Ranks())
	link := stallingLink{m, rand.New(rand.NewPCG(t.Seed, uint64(rank)+2)), t.Control}
	c, err := New(link, Config{Plan: randomPlan(rng, shape, tortureElements)})
	if err != nil {
		return err
	}
	v := newVictim(c, t.Seed)
	for op := range t.Operations {
		if err := v.operate(rng); err != nil {
			return fmt.Errorf("all-reduce %d of seed %d: %w", op, t.Seed, err)
		}
	}
	return nil
}

// tortureShape is one island, or several of a power of two.
func tortureShape(rng *rand.Rand, ranks int) Shape {
	s := Shape{Ranks: ranks, Coherent: true}
	if m := 1 << rng.IntN(3); ranks%m == 0 && ranks > m {
		for range ranks / m {
			s.Islands = append(s.Islands, m)
		}
	}
	return s
}

// randomPlan uses a random exact algorithm for each of several ranges of sizes.
func randomPlan(rng *rand.Rand, s Shape, elements int) Plan {
	p := Plan{Version: PlanVersion, Shape: s}
	var admitted []string
	for _, a := range Algorithms() {
		if a.Exact && a.Admits(s, Payload{}) == nil {
			admitted = append(admitted, a.Name)
		}
	}
	for i := range tortureRanges {
		for _, fused := range []bool{false, true} {
			most := 4 * int(math.Pow(float64(elements), float64(i+1)/tortureRanges))
			p.Choices = append(p.Choices, Choice{MaxBytes: most, Fused: fused, Algorithm: admitted[rng.IntN(len(admitted))]})
		}
	}
	// What no range admits: packets at a large size, a residual in common.
	return appendAll(p, "central")
}

// appendAll adds an algorithm for whatever the choices before leave.
func appendAll(p Plan, algorithm string) Plan {
	p.Choices = append(p.Choices, Choice{Algorithm: algorithm}, Choice{Algorithm: algorithm, Fused: true})
	return p
}

// victim is one rank's operands. Every operation takes a random window of them, so
// that the sum of any other operation is wrong.
type victim struct {
	c                *Communicator
	mine, want       []float32 // this rank's, and the sum over ranks
	residual, weight []float32
	own              []float32 // a residual of this rank
	sum, normed      []float32 // what must come out
}

// slack is by how much windows may begin later.
const slack = 4096

func newVictim(c *Communicator, seed uint64) *victim {
	parts := make([][]float32, c.size)
	for r := range parts {
		parts[r] = wildValues(seed, uint64(r), tortureElements+slack)
	}
	buffer := func() []float32 { return make([]float32, tortureElements) }
	return &victim{
		c: c, mine: parts[c.rank], want: contractSum(parts),
		residual: wildValues(seed, 77, tortureElements+slack), weight: wildValues(seed, 99, tortureElements+slack),
		own: buffer(), sum: buffer(), normed: buffer(),
	}
}

// wildValues is of mixed magnitude and sign, so that the order of additions shows.
func wildValues(seed, stream uint64, n int) []float32 {
	r := rand.NewPCG(seed, stream+100)
	out := make([]float32, n)
	for i := range out {
		bits := uint32(r.Uint64())
		exponent := 115 + bits>>25%24
		out[i] = math.Float32frombits(bits&0x807fffff | exponent<<23)
	}
	return out
}

// contractSum is the contract, spelt out: neighbours are added level by level, an
// odd one is carried up.
func contractSum(parts [][]float32) []float32 {
	for len(parts) > 1 {
		var next [][]float32
		for i := 0; i+1 < len(parts); i += 2 {
			sum := make([]float32, len(parts[i]))
			for k := range sum {
				sum[k] = parts[i][k] + parts[i+1][k]
			}
			next = append(next, sum)
		}
		if len(parts)%2 == 1 {
			next = append(next, parts[len(parts)-1])
		}
		parts = next
	}
	return parts[0]
}

// operate draws one all-reduce, runs it and checks it.
func (v *victim) operate(rng *rand.Rand) error {
	n := int(math.Exp(rng.Float64() * math.Log(tortureElements)))
	rows := 1 + rng.IntN(8)
	width := max(1, n/rows)
	n = rows * width
	at := rng.IntN(slack)
	fused, common := rng.IntN(2) == 0, rng.IntN(2) == 0
	slab, err := v.c.Partial(rows, width)
	if err != nil {
		return err
	}
	if !fused {
		copy(slab, v.mine[at:])
		sum, err := v.c.AllReduce(slab, rows, width)
		if err != nil {
			return err
		}
		return differ("sum", sum, v.want[at:at+n])
	}
	residual := v.own[:n]
	if shared := v.c.Residual(rows, width); common && shared != nil {
		if err := v.c.Barrier(); err != nil { // the others have read what was there
			return err
		}
		if slab, err = v.c.Partial(rows, width); err != nil {
			return err
		}
		residual = shared
	}
	copy(residual, v.residual[at:])
	copy(slab, v.mine[at:])
	weight := v.weight[at : at+width]
	normed, err := v.c.AllReduceAddNorm(slab, rows, width, residual, weight, tortureEps)
	if err != nil {
		return err
	}
	for i := range n {
		v.sum[i] = v.want[at+i] + v.residual[at+i]
	}
	for lo := 0; lo < n; lo += width {
		cpu.NormRow(v.normed[lo:lo+width], v.sum[lo:lo+width], weight, tortureEps)
	}
	return errors.Join(differ("residual", residual, v.sum[:n]), differ("normed rows", normed, v.normed[:n]))
}

func differ(what string, got, want []float32) error {
	for i := range want {
		if g, w := math.Float32bits(got[i]), math.Float32bits(want[i]); g != w {
			return fmt.Errorf("the %s has %#x at element %d of %d, want %#x", what, g, i, len(want), w)
		}
	}
	return nil
}

// stallingLink stalls its rank at random, as a scheduler would, and leaves out what
// the control says.
type stallingLink struct {
	*transport.SharedMemory
	rng     *rand.Rand
	control Control
}

func (l stallingLink) stall() {
	if l.rng.IntN(stallOdds) == 0 {
		time.Sleep(time.Duration(l.rng.IntN(stallMost)))
	}
}

func (l stallingLink) Memory(region transport.Region, owner, peer int, op uint32) []float32 {
	if l.control == OneBuffer {
		op = 0
	}
	return l.SharedMemory.Memory(region, owner, peer, op)
}

func (l stallingLink) Post(op uint32, d transport.Descriptor) {
	l.stall()
	l.SharedMemory.Post(op, d)
}

func (l stallingLink) AwaitPost(from int, op uint32) error {
	if l.control == RendezvousRemoved {
		return l.Err()
	}
	err := l.SharedMemory.AwaitPost(from, op)
	l.stall()
	return err
}

func (l stallingLink) Signal(to, tag int, op uint32) {
	l.stall()
	l.SharedMemory.Signal(to, tag, op)
}

func (l stallingLink) Await(from, tag int, op uint32, phase transport.Phase) error {
	err := l.SharedMemory.Await(from, tag, op, phase)
	l.stall()
	return err
}

func (l stallingLink) Arrive(op uint32) bool {
	l.stall()
	return l.SharedMemory.Arrive(op) || l.control == BarrierOpensEarly && l.Rank() == 0
}

func (l stallingLink) Finish(op uint32, chunks int) {
	l.stall()
	l.SharedMemory.Finish(op, chunks)
}
