package boxsim

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/octet-run/octet/collectives"
	"github.com/octet-run/octet/collectives/transport"
	"github.com/octet-run/octet/internal/testgroup"
	"github.com/octet-run/octet/kernels/cpu"
)

func TestMain(m *testing.M) {
	testgroup.Main(m, map[string]testgroup.Role{"measure": measureRole})
}

// measureRole is a rank process of BenchmarkThisMachine.
func measureRole(child testgroup.Child) error {
	var b collectives.RankBench
	if err := json.Unmarshal([]byte(child.Args[0]), &b); err != nil {
		return err
	}
	g, err := transport.Open(child.Files[0])
	if err != nil {
		return err
	}
	defer g.Close()
	timings, err := b.Run(g, child.Rank)
	if err != nil || child.Rank != 0 {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(timings)
}

// BenchmarkThisMachine measures this machine's all-reduce at the sizes of the
// calibration list and prints them in its form. The least size is what an operation costs without data.
func BenchmarkThisMachine(b *testing.B) {
	sizes := []int{4, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20}
	var payloads []collectives.Payload
	for _, bytes := range sizes {
		payloads = append(payloads, collectives.Payload{Rows: 1, Width: bytes / 4})
	}
	for _, ranks := range []int{8, 2} {
		b.Run(fmt.Sprintf("%d ranks", ranks), func(b *testing.B) {
			for range b.N {
				rank := collectives.RankBench{
					Name: "octet", Payloads: payloads, Iterations: 400, Dedicated: ranks <= 2, Pin: true, Floor: true,
				}
				args, err := json.Marshal(rank)
				if err != nil {
					b.Fatal(err)
				}
				timings, err := collectives.Bench{
					RankBench: rank, Ranks: ranks, Rounds: 5,
					Command: func(ctx context.Context, r int) *exec.Cmd {
						return testgroup.Command(ctx, "measure", r, ranks, 1, string(args))
					},
				}.Run(context.Background())
				if err != nil {
					b.Fatal(err)
				}
				for _, t := range timings {
					fmt.Printf("%s ranks=%d bytes=%d us=%.1f\n", t.Name, ranks, t.Bytes, t.Median.Seconds()*1e6)
				}
			}
		})
	}
}

// BenchmarkThisMachineSums measures the tree sum of eight operands alone, as the
// central algorithm does it: in chunks, by whichever core is free, two sets of
// buffers in turn; and by one core. Medians, in 10^9 bytes a second of operands and
// sums: the rates of the box's cache tiers.
func BenchmarkThisMachineSums(b *testing.B) {
	for _, cores := range []int{1, runtime.NumCPU()} {
		for _, bytes := range []int{16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("%d cores, %d bytes", cores, bytes), func(b *testing.B) {
				took := timeSums(b, cores, bytes/4, b.N+1)
				slices.Sort(took)
				b.ReportMetric(float64(9*bytes)/float64(took[len(took)/2]), "GB/s")
			})
		}
	}
}

// timeSums lets some cores take chunks of each round's sum; round i begins when all
// chunks of the one before are done.
func timeSums(b *testing.B, cores, elements, rounds int) []time.Duration {
	const ranks, chunk = 8, 4096
	var sources [2][][]float32
	for parity := range sources {
		for range ranks + 1 {
			sources[parity] = append(sources[parity], make([]float32, elements))
		}
	}
	chunks := int64((elements + chunk - 1) / chunk)
	ends := make([]time.Time, rounds)
	var claims, done atomic.Int64
	var group sync.WaitGroup
	for core := range cores {
		group.Go(func() {
			runtime.LockOSThread()
			var set unix.CPUSet
			set.Set(core)
			if err := unix.SchedSetaffinity(0, &set); err != nil {
				b.Error(err)
			}
			for {
				claim := claims.Add(1) - 1
				round := claim / chunks
				if round >= int64(rounds) {
					return
				}
				for done.Load() < round*chunks {
					runtime.Gosched()
				}
				lo := int(claim%chunks) * chunk
				hi := min(lo+chunk, elements)
				var parts [ranks][]float32
				for r := range parts {
					parts[r] = sources[round&1][r][lo:hi]
				}
				cpu.SumTree(sources[round&1][ranks][lo:hi], parts[:])
				if done.Add(1) == (round+1)*chunks {
					ends[round] = time.Now()
				}
			}
		})
	}
	group.Wait()
	took := make([]time.Duration, 0, rounds)
	for i := 1; i < rounds; i++ {
		took = append(took, ends[i].Sub(ends[i-1]))
	}
	return took
}
