package collectives

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/octet-run/octet/collectives/transport"
)

// stallingLink stalls its rank at random before flags, as a scheduler would.
type stallingLink struct {
	*transport.SharedMemory
	rng *rand.Rand
}

func (l stallingLink) stall() {
	if l.rng.IntN(8) == 0 {
		time.Sleep(time.Duration(l.rng.IntN(200)) * time.Microsecond)
	}
}

func (l stallingLink) Post(op uint32, d transport.Descriptor) {
	l.stall()
	l.SharedMemory.Post(op, d)
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

func (l stallingLink) AwaitPost(from int, op uint32) error {
	err := l.SharedMemory.AwaitPost(from, op)
	l.stall()
	return err
}

func (l stallingLink) Finish(op uint32, chunks int) {
	l.stall()
	l.SharedMemory.Finish(op, chunks)
}

// TestRandomOperationsWithStalledRanks mixes sizes and algorithms, with ranks that
// stall at random and operation numbers that wrap on the way.
func TestRandomOperationsWithStalledRanks(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			shape := Shape{Ranks: 8, Coherent: true, Islands: [][]int{nil, {4, 4}, {2, 2, 2, 2}}[rng.IntN(3)]}
			if seed%2 == 1 {
				shape = Shape{Ranks: 2 + rng.IntN(6), Coherent: true}
			}
			plan, sizes := randomPlan(rng, shape), randomSizes(rng, 60)
			tc := transport.Config{
				Ranks: shape.Ranks, MaxRows: 1, MaxWidth: 4000,
				FirstOp: []uint32{math.MaxInt32 - 20, math.MaxUint32 - 20}[seed%2],
			}
			g := newGroup(t, tc)
			mustAll(t, runOn(t, g, func(rank int) error {
				m, err := g.Attach(rank, transport.Polling{Timeout: limit})
				if err != nil {
					return err
				}
				link := stallingLink{m, rand.New(rand.NewPCG(seed, uint64(rank)+2))}
				c, err := New(link, Config{Plan: plan})
				if err != nil {
					return err
				}
				return reduceSizes(c, sizes)
			}))
		})
	}
}

// randomPlan uses a random exact algorithm for each of several ranges of sizes.
func randomPlan(rng *rand.Rand, s Shape) Plan {
	p := Plan{Version: PlanVersion, Shape: s}
	var admitted []string
	for _, a := range Algorithms() {
		if a.Exact && a.Admits(s, Payload{}) == nil {
			admitted = append(admitted, a.Name)
		}
	}
	for bytes := 0; bytes <= 16000; bytes += 1600 {
		p.Choices = append(p.Choices, Choice{MaxBytes: max(bytes, 1), Algorithm: admitted[rng.IntN(len(admitted))]})
	}
	return p
}

func randomSizes(rng *rand.Rand, n int) []int {
	sizes := make([]int, n)
	for i := range sizes {
		sizes[i] = rng.IntN(4000)
	}
	return sizes
}
