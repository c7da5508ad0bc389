package collectives

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/octet-run/octet/collectives/transport"
	"github.com/octet-run/octet/internal/shm"
	"github.com/octet-run/octet/internal/testgroup"
	"github.com/octet-run/octet/kernels/cpu"
)

const limit = 2 * time.Minute

func newGroup(t testing.TB, cfg transport.Config) *transport.Group {
	t.Helper()
	g, err := transport.Create(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// each runs body on a communicator of every rank of a new group.
func each(t testing.TB, tc transport.Config, p transport.Polling, cfg Config, body func(c *Communicator) error) []error {
	t.Helper()
	g := newGroup(t, tc)
	return testgroup.Goroutines(t, tc.Ranks, limit, func(rank int) error {
		link, err := g.Attach(rank, p)
		if err != nil {
			return err
		}
		c, err := New(link, cfg)
		if err != nil {
			return err
		}
		return body(c)
	})
}

func mustAll(t testing.TB, errs []error) {
	t.Helper()
	for r, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// values is what rank brings to operation op: of mixed magnitude and sign, so
// that the order of additions shows.
func values(n, rank, op int) []float32 {
	r := rand.NewPCG(uint64(rank), uint64(op))
	out := make([]float32, n)
	for i := range out {
		bits := uint32(r.Uint64())
		exponent := 115 + bits>>25%24
		out[i] = math.Float32frombits(bits&0x807fffff | exponent<<23)
	}
	return out
}

func wantSum(n, ranks, op int) []float32 {
	var parts [][]float32
	for r := range ranks {
		parts = append(parts, values(n, r, op))
	}
	return contractSum(parts)
}

func sameBits(what string, got, want []float32) error {
	if len(got) != len(want) {
		return fmt.Errorf("%s: %d elements, want %d", what, len(got), len(want))
	}
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			return fmt.Errorf("%s: element %d is %v (%#x), want %v (%#x)", what, i, got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
	return nil
}

var configs = map[string]Config{"central": {}, "direct": {Dedicated: true}}

func TestAllReduceIsTheTreeSumForEveryGroupSize(t *testing.T) {
	for name, cfg := range configs {
		for ranks := 1; ranks <= 8; ranks++ {
			for _, firstOp := range []uint32{0, math.MaxInt32, math.MaxUint32 - 1} {
				t.Run(fmt.Sprintf("%s/%d ranks/op %d", name, ranks, firstOp), func(t *testing.T) {
					tc := transport.Config{Ranks: ranks, MaxRows: 4, MaxWidth: 3000, Epoch: 7, FirstOp: firstOp}
					mustAll(t, each(t, tc, transport.Polling{Timeout: limit}, cfg, func(c *Communicator) error {
						return reduceSizes(c, []int{1, 7, 512, 3000, 12000, 0, 4097})
					}))
				})
			}
		}
	}
}

func reduceSizes(c *Communicator, sizes []int) error {
	for op, n := range sizes {
		slab, err := c.Partial(1, n)
		if err != nil {
			return err
		}
		copy(slab, values(n, c.Rank(), op))
		sum, err := c.AllReduce(slab, 1, n)
		if err != nil {
			return err
		}
		if err := sameBits(fmt.Sprintf("sum of operation %d", op), sum, wantSum(n, c.Size(), op)); err != nil {
			return err
		}
	}
	return nil
}

func TestFusedEqualsUnfusedBitForBit(t *testing.T) {
	for name, cfg := range configs {
		t.Run(name, func(t *testing.T) {
			tc := transport.Config{Ranks: 8, MaxRows: 8, MaxWidth: 1536}
			mustAll(t, each(t, tc, transport.Polling{Timeout: limit}, cfg, fusedAgainstUnfused))
		})
	}
}

func fusedAgainstUnfused(c *Communicator) error {
	const eps = 1e-5
	for op, shape := range [][2]int{{1, 64}, {3, 512}, {8, 1536}, {5, 1000}} {
		rows, width := shape[0], shape[1]
		weight := values(width, 99, op)
		partial := values(rows*width, c.Rank(), op)

		sum, err := c.AllReduce(partial, rows, width)
		if err != nil {
			return err
		}
		want, wantResidual := make([]float32, rows*width), values(rows*width, 77, op)
		cpu.Add(wantResidual, wantResidual, sum)
		normRows(want, wantResidual, width, weight, eps)

		residual := values(rows*width, 77, op)
		normed, err := c.AllReduceAddNorm(partial, rows, width, residual, weight, eps)
		if err != nil {
			return err
		}
		if err := errors.Join(sameBits("normed", normed, want), sameBits("residual", residual, wantResidual)); err != nil {
			return err
		}

		common := c.Residual(rows, width)
		copy(common, values(rows*width, 77, op))
		if err := c.Barrier(); err != nil {
			return err
		}
		normed, err = c.AllReduceAddNorm(partial, rows, width, common, weight, eps)
		if err != nil {
			return err
		}
		if err := errors.Join(sameBits("normed, common", normed, want), sameBits("common residual", common, wantResidual)); err != nil {
			return err
		}
		if err := c.Barrier(); err != nil {
			return err
		}
	}
	return nil
}

func TestACommonResidualNeedsAPlanThatHasOneWriter(t *testing.T) {
	for algorithm, want := range map[string]bool{"central": true, "shared two-shot": true, "one-shot": false, "two-shot": false} {
		tc := transport.Config{Ranks: 2, MaxRows: 1, MaxWidth: 64}
		mustAll(t, each(t, tc, transport.Polling{Timeout: limit}, Config{Plan: planOf(algorithm, Shape{Ranks: 2, Coherent: true})}, func(c *Communicator) error {
			if got := c.Residual(1, 64) != nil; got != want {
				return fmt.Errorf("%s: common residual offered: %v, want %v", algorithm, got, want)
			}
			return nil
		}))
	}
}

func TestGatherBroadcastBarrier(t *testing.T) {
	for name, cfg := range configs {
		t.Run(name, func(t *testing.T) {
			// A slab of 60 elements makes the larger calls go in pieces.
			tc := transport.Config{Ranks: 3, MaxRows: 1, MaxWidth: 60}
			mustAll(t, each(t, tc, transport.Polling{Timeout: limit}, cfg, gatherAndBroadcast))
		})
	}
}

func gatherAndBroadcast(c *Communicator) error {
	widths := []int{40, 0, 21}
	for _, rows := range []int{0, 1, 7} {
		shard := values(rows*widths[c.Rank()], c.Rank(), rows)
		var want []float32
		for t := range rows {
			for r, w := range widths {
				want = append(want, values(rows*w, r, rows)[t*w:(t+1)*w]...)
			}
		}
		all, err := c.AllGather(shard, rows, widths)
		if err != nil {
			return err
		}
		root, err := c.GatherToRoot(shard, rows, widths)
		if err != nil {
			return err
		}
		if err := sameBits("all-gather", all, want); err != nil {
			return err
		}
		if c.Rank() != 0 {
			want = nil
		}
		if err := sameBits("gather to root", root, want); err != nil {
			return err
		}
	}
	for root := range c.Size() {
		data := values(150, c.Rank(), root)
		if err := c.Broadcast(data, root); err != nil {
			return err
		}
		if err := sameBits("broadcast", data, values(150, root, root)); err != nil {
			return err
		}
		if err := c.Barrier(); err != nil {
			return err
		}
	}
	return nil
}

func TestResultsStayValidUntilTheNextCallButOne(t *testing.T) {
	for name, cfg := range configs {
		t.Run(name, func(t *testing.T) {
			tc := transport.Config{Ranks: 4, MaxRows: 1, MaxWidth: 1024}
			mustAll(t, each(t, tc, transport.Polling{Timeout: limit}, cfg, func(c *Communicator) error {
				var before []float32
				for op := range 200 {
					sum, err := c.AllReduce(values(1024, c.Rank(), op), 1, 1024)
					if err != nil {
						return err
					}
					if op > 0 {
						if err := sameBits("the result before", before, wantSum(1024, c.Size(), op-1)); err != nil {
							return err
						}
					}
					before = sum
				}
				return nil
			}))
		})
	}
}

// countedLink counts how often a rank of its group has entered an operation.
type countedLink struct {
	*transport.SharedMemory
	entered *atomic.Int32
}

func (l countedLink) Post(op uint32, d transport.Descriptor) {
	l.SharedMemory.Post(op, d)
	l.entered.Add(1)
}

func TestRanksOutOfStepAreNamed(t *testing.T) {
	cases := map[string]func(c *Communicator) error{
		"size": func(c *Communicator) error {
			_, err := c.AllReduce(make([]float32, 8), 2, 4)
			return err
		},
		"operation": func(c *Communicator) error { return c.Barrier() },
	}
	for name, odd := range cases {
		for algorithm, cfg := range configs {
			t.Run(name+"/"+algorithm, func(t *testing.T) {
				tc := transport.Config{Ranks: 4, MaxRows: 4, MaxWidth: 64, Epoch: 1}
				g := newGroup(t, tc)
				var entered atomic.Int32
				errs := runOn(t, g, func(rank int) error {
					m, err := g.Attach(rank, transport.Polling{Timeout: limit})
					if err != nil {
						return err
					}
					c, err := New(countedLink{m, &entered}, cfg)
					if err != nil {
						return err
					}
					if err := c.Barrier(); err != nil {
						return err
					}
					if rank == 2 { // last, so that three vote against it
						for entered.Load() < 4+3 {
							time.Sleep(time.Millisecond)
						}
						return odd(c)
					}
					_, err = c.AllReduce(make([]float32, 12), 3, 4)
					return err
				})
				expectBlame(t, errs, 2, shm.OutOfStep)
			})
		}
	}
}

// expectBlame checks that every error is typed and names the rank, whether the
// rank saw the fault itself or was told.
func expectBlame(t *testing.T, errs []error, rank int, reason shm.Reason) {
	t.Helper()
	for r, err := range errs {
		var timeout *transport.TimeoutError
		var mismatch *transport.MismatchError
		var abort *shm.AbortError
		switch {
		case errors.As(err, &mismatch) && mismatch.Rank == rank && reason == shm.OutOfStep:
		case errors.As(err, &timeout) && timeout.Rank == rank && reason == shm.TimedOut:
		case errors.As(err, &abort) && abort.Rank == rank && abort.Reason == reason:
		default:
			t.Errorf("rank %d: error %v does not name rank %d (%v)", r, err, rank, reason)
		}
	}
}

func TestAMissingRankIsNamedAtTheDeadline(t *testing.T) {
	for name, cfg := range configs {
		t.Run(name, func(t *testing.T) {
			tc := transport.Config{Ranks: 4, MaxRows: 1, MaxWidth: 64}
			errs := each(t, tc, transport.Polling{Timeout: limit}, cfg, func(c *Communicator) error {
				if err := c.Barrier(); err != nil { // the ranks do not start at once
					return err
				}
				if c.Rank() == 3 {
					return nil
				}
				c.link.(*transport.SharedMemory).SetTimeout(time.Second)
				_, err := c.AllReduce(make([]float32, 64), 1, 64)
				if again := c.Barrier(); again == nil {
					return errors.New("an operation of a broken epoch succeeded")
				}
				return err
			})
			expectBlame(t, errs[:3], 3, shm.TimedOut)
		})
	}
}

func TestSkewIsTheTimeWaitedForOthersToCome(t *testing.T) {
	const late = 200 * time.Millisecond
	for name, cfg := range configs {
		t.Run(name, func(t *testing.T) {
			skews := make([]time.Duration, 3)
			var came sync.WaitGroup // ranks 0 and 1
			came.Add(2)
			tc := transport.Config{Ranks: 3, MaxRows: 1, MaxWidth: 64}
			mustAll(t, each(t, tc, transport.Polling{Timeout: limit}, cfg, func(c *Communicator) error {
				if err := c.Barrier(); err != nil {
					return err
				}
				before := c.Skew()
				if c.Rank() == 2 {
					came.Wait()
					time.Sleep(late)
				} else {
					came.Done()
				}
				_, err := c.AllReduce(make([]float32, 64), 1, 64)
				skews[c.Rank()] = c.Skew() - before
				return err
			}))
			if skews[0] < late/2 || skews[1] < late/2 || skews[2] > late/2 {
				t.Errorf("skews %v, rank 2 came %v late", skews, late)
			}
		})
	}
}

func TestOperationHashesAgreeAndDependOnHistory(t *testing.T) {
	hashes := make([]uint64, 4)
	tc := transport.Config{Ranks: 4, MaxRows: 1, MaxWidth: 64}
	mustAll(t, each(t, tc, transport.Polling{Timeout: limit}, Config{}, func(c *Communicator) error {
		before := c.OpHash()
		err := c.Barrier()
		if c.OpHash() == before {
			return errors.New("a barrier left the hash as it was")
		}
		hashes[c.Rank()] = c.OpHash()
		return err
	}))
	for r, h := range hashes {
		if h != hashes[0] {
			t.Errorf("rank %d has hash %#x, rank 0 %#x", r, h, hashes[0])
		}
	}
}

func TestAllReduceAllocatesNothing(t *testing.T) {
	tc := transport.Config{Ranks: 1, MaxRows: 1, MaxWidth: 1024}
	mustAll(t, each(t, tc, transport.Polling{Timeout: limit}, Config{}, func(c *Communicator) error {
		n := testing.AllocsPerRun(100, func() {
			slab, _ := c.Partial(1, 1024)
			if _, err := c.AllReduce(slab, 1, 1024); err != nil {
				t.Error(err)
			}
		})
		if n != 0 {
			return fmt.Errorf("%v allocations per all-reduce", n)
		}
		return nil
	}))
}

// reduceRole is a rank process: open the inherited group, reduce, compare.
func reduceRole(child testgroup.Child) error {
	g, err := transport.Open(child.Files[0])
	if err != nil {
		return err
	}
	defer g.Close()
	link, err := g.Attach(child.Rank, transport.Polling{Timeout: limit})
	if err != nil {
		return err
	}
	c, err := New(link, Config{Dedicated: child.Args[0] == "direct"})
	if err != nil {
		return err
	}
	rounds, err := strconv.Atoi(child.Args[1])
	if err != nil {
		return err
	}
	for range rounds {
		if err := reduceSizes(c, []int{1, 512, 12000, 4097}); err != nil {
			return err
		}
	}
	return nil
}

func TestProcessesReduceThroughAnInheritedSegment(t *testing.T) {
	rounds := "20"
	if testing.Short() {
		rounds = "2"
	}
	for name := range configs {
		t.Run(name, func(t *testing.T) {
			g := newGroup(t, transport.Config{Ranks: 8, MaxRows: 4, MaxWidth: 3000})
			procs := testgroup.Start(t, "reduce", 8, []*os.File{g.File()}, name, rounds)
			for r, exit := range procs.Wait(limit) {
				if exit.Err != nil {
					t.Errorf("rank %d: %v: %s", r, exit.Err, exit.Output)
				}
			}
		})
	}
}
