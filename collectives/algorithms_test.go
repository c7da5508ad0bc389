package collectives

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/octet-run/octet/collectives/transport"
	"github.com/octet-run/octet/kernels/cpu"
)

// shapes are the groups of the contract: all sizes, even islands and uneven ones.
func shapes() []Shape {
	var out []Shape
	for ranks := 1; ranks <= 8; ranks++ {
		out = append(out, Shape{Ranks: ranks, Coherent: true})
	}
	for _, islands := range [][]int{{4, 4}, {2, 2, 2, 2}, {2, 2}, {2, 2, 2}, {1, 1, 1, 1, 1}, {5, 3}, {3, 3}} {
		n := 0
		for _, m := range islands {
			n += m
		}
		out = append(out, Shape{Ranks: n, Islands: islands, Coherent: true})
	}
	return out
}

// planOf is the plan that uses one algorithm for everything it admits.
func planOf(algorithm string, s Shape) Plan {
	return Plan{
		Version: PlanVersion, Shape: s, AllowInexact: true,
		Choices: []Choice{{Algorithm: algorithm}, {Algorithm: algorithm, Fused: true}},
	}
}

var payloads = []Payload{
	{Rows: 1, Width: 1}, {Rows: 1, Width: 31}, {Rows: 3, Width: 100}, {Rows: 1, Width: 4099}, {Rows: 5, Width: 1536},
}

func TestEveryExactAlgorithmKeepsTheContractBitForBit(t *testing.T) {
	for _, a := range Algorithms() {
		for _, s := range shapes() {
			if a.Admits(s, Payload{Rows: 1, Width: 1}) != nil {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d%v", a.Name, s.Ranks, s.Islands), func(t *testing.T) {
				tc := transport.Config{Ranks: s.Ranks, MaxRows: 5, MaxWidth: 1536, FirstOp: math.MaxUint32 - 3}
				mustAll(t, each(t, tc, transport.Polling{Timeout: limit}, Config{Plan: planOf(a.Name, s)}, func(c *Communicator) error {
					return errors.Join(reducePayloads(c, a.Exact)...)
				}))
			})
		}
	}
}

func reducePayloads(c *Communicator, exact bool) (errs []error) {
	for op, p := range payloads {
		sum, err := c.AllReduce(values(p.Elements(), c.Rank(), op), p.Rows, p.Width)
		if err != nil {
			return append(errs, err)
		}
		want := wantSum(p.Elements(), c.Size(), op)
		if exact {
			errs = append(errs, sameBits("sum", sum, want))
		} else {
			errs = append(errs, nearly("sum", sum, want, c.Size(), op))
		}
		residual, weight := values(p.Elements(), 77, op), values(p.Width, 99, op)
		normed, err := c.AllReduceAddNorm(values(p.Elements(), c.Rank(), op), p.Rows, p.Width, residual, weight, 1e-6)
		if err != nil {
			return append(errs, err)
		}
		if !exact {
			continue
		}
		wantResidual, wantNormed := values(p.Elements(), 77, op), make([]float32, p.Elements())
		cpu.Add(wantResidual, wantResidual, want)
		for lo := 0; lo < p.Elements(); lo += p.Width { // row by row: a row's bits do not depend on the others
			normRows(wantNormed[lo:lo+p.Width], wantResidual[lo:lo+p.Width], p.Width, weight, 1e-6)
		}
		errs = append(errs, sameBits("residual", residual, wantResidual), sameBits("normed", normed, wantNormed))
	}
	return errs
}

// nearly compares a sum in another order: within the rounding of its terms.
func nearly(what string, got, want []float32, ranks, op int) error {
	magnitude := make([]float64, len(want))
	for r := range ranks {
		for i, v := range values(len(want), r, op) {
			magnitude[i] += math.Abs(float64(v))
		}
	}
	for i := range want {
		if math.Abs(float64(got[i])-float64(want[i])) > magnitude[i]*1e-6 {
			return fmt.Errorf("%s: element %d is %v, want about %v", what, i, got[i], want[i])
		}
	}
	return nil
}

func TestAdmissionRefusesWhatAnAlgorithmCannotDo(t *testing.T) {
	flat := Shape{Ranks: 8}
	cases := []struct {
		algorithm string
		shape     Shape
		payload   Payload
		admitted  bool
	}{
		{"central", flat, Payload{}, false},
		{"one-shot", flat, Payload{}, false},
		{"shared two-shot", flat, Payload{}, false},
		{"central", Shape{Ranks: 8, Coherent: true}, Payload{}, true},
		{"two-shot", flat, Payload{}, true},
		{"packets", flat, Payload{Rows: 1, Width: 1 << 20}, false},
		{"hierarchical", flat, Payload{}, false},
		{"hierarchical", Shape{Ranks: 8, Islands: []int{4, 4}}, Payload{}, true},
		{"hierarchical", Shape{Ranks: 8, Islands: []int{2, 2, 2, 2}}, Payload{}, true},
		{"hierarchical", Shape{Ranks: 8, Islands: []int{5, 3}}, Payload{}, false},
		{"hierarchical", Shape{Ranks: 6, Islands: []int{3, 3}}, Payload{}, false},
		{"ring", Shape{Ranks: 16}, Payload{}, false},
	}
	for _, c := range cases {
		a, err := Find(c.algorithm)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Admits(c.shape, c.payload); (err == nil) != c.admitted {
			t.Errorf("%s on %+v with %+v: admitted %v, want %v (%v)", c.algorithm, c.shape, c.payload, err == nil, c.admitted, err)
		}
	}
}

// traceLine is a step as it happened: which memory was read and written, which
// flag was raised or waited for. Flags are logged by the transport, which knows no
// step numbers.
type traceLine struct {
	step int
	text string
}

const noStep = -1

// loggingLink logs the flags of one rank.
type loggingLink struct {
	*transport.SharedMemory
	log *[]traceLine
}

func (l loggingLink) add(text string) { *l.log = append(*l.log, traceLine{noStep, text}) }

func (l loggingLink) Post(op uint32, d transport.Descriptor) {
	l.add(flagLine(Signal, Everyone, Posted))
	l.SharedMemory.Post(op, d)
}

func (l loggingLink) Signal(to, tag int, op uint32) {
	l.add(flagLine(Signal, to, tag))
	l.SharedMemory.Signal(to, tag, op)
}

func (l loggingLink) AwaitPost(from int, op uint32) error {
	l.add(flagLine(Wait, from, Posted))
	return l.SharedMemory.AwaitPost(from, op)
}

func (l loggingLink) Await(from, tag int, op uint32, phase transport.Phase) error {
	l.add(flagLine(Wait, from, tag))
	return l.SharedMemory.Await(from, tag, op, phase)
}

func (l loggingLink) AwaitFinish(op uint32, help func() bool) error {
	l.add(flagLine(Wait, Everyone, 0))
	return l.SharedMemory.AwaitFinish(op, help)
}

func flagLine(do Action, peer, tag int) string {
	return fmt.Sprintf("%v peer=%d tag=%d", do, peer, tag)
}

func TestTheTraceOfARunEqualsItsProgram(t *testing.T) {
	for _, a := range Algorithms() {
		for _, s := range shapes() {
			for _, p := range []Payload{{Rows: 3, Width: 1500}, {Rows: 3, Width: 1500, Fused: true}, {Rows: 3, Width: 1500, Fused: true, CommonResidual: true}} {
				if a.Admits(s, p) != nil {
					continue
				}
				t.Run(fmt.Sprintf("%s/%d%v/fused %v common %v", a.Name, s.Ranks, s.Islands, p.Fused, p.CommonResidual), func(t *testing.T) {
					checkTrace(t, a, s, p)
				})
			}
		}
	}
}

func checkTrace(t *testing.T, a Algorithm, s Shape, p Payload) {
	logs := make([][]traceLine, s.Ranks)
	g := newGroup(t, transport.Config{Ranks: s.Ranks, MaxRows: p.Rows, MaxWidth: p.Width})
	mustAll(t, runOn(t, g, func(rank int) error {
		memory, err := g.Attach(rank, transport.Polling{Timeout: limit})
		if err != nil {
			return err
		}
		where, link := newAtlas(memory), loggingLink{memory, &logs[rank]}
		c, err := New(link, Config{Plan: planOf(a.Name, s), Trace: func(_ uint32, step int, do Action, from [][]float32, to []float32) {
			logs[rank] = append(logs[rank], traceLine{step, where.line(do, from, to)})
		}})
		if err != nil {
			return err
		}
		partial := make([]float32, p.Elements())
		if p.Fused {
			residual := make([]float32, p.Elements())
			if p.CommonResidual {
				residual = c.Residual(p.Rows, p.Width)
			}
			_, err = c.AllReduceAddNorm(partial, p.Rows, p.Width, residual, make([]float32, p.Width), 1)
		} else {
			_, err = c.AllReduce(partial, p.Rows, p.Width)
		}
		return err
	}))
	var shared []traceLine // steps of units, by whichever rank
	for rank := range s.Ranks {
		var got, want []string
		steps := a.Program(s, rank, p)
		unit := inUnit(steps)
		for _, l := range logs[rank] {
			if l.step != noStep && unit[l.step] {
				shared = append(shared, l)
			} else {
				got = append(got, l.text)
			}
		}
		if steps[0].Peer != Everyone { // descriptors are posted on entry, whatever the program
			want = append(want, flagLine(Signal, Everyone, Posted))
		}
		for i, step := range steps {
			if !unit[i] {
				want = append(want, stepLines(step)...)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("rank %d did\n%v\nits program is\n%v", rank, got, want)
		}
	}
	var want []traceLine
	steps := a.Program(s, 0, p)
	for i, in := range inUnit(steps) {
		if in {
			want = append(want, traceLine{i, stepLines(steps[i])[0]})
		}
	}
	slices.SortFunc(shared, func(a, b traceLine) int { return a.step - b.step })
	if !slices.Equal(shared, want) {
		t.Errorf("the units were done as\n%v\nthe program is\n%v", shared, want)
	}
}

// inUnit marks the steps of units, LastArrival included.
func inUnit(steps []Step) []bool {
	in := make([]bool, len(steps))
	for i, s := range steps {
		if s.Do == LastArrival {
			for k := range s.Count + 1 {
				in[i+k] = true
			}
		}
	}
	return in
}
