package collectives

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/octet-run/octet/collectives/transport"
	"github.com/octet-run/octet/internal/testgroup"
)

// benchRole is a rank process of a Bench.
func benchRole(child testgroup.Child) error {
	var b RankBench
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

// benchPayloads is one plain payload for each size.
func benchPayloads(bytes ...int) []Payload {
	var out []Payload
	for _, b := range bytes {
		out = append(out, Payload{Rows: 1, Width: b / 4})
	}
	return out
}

// benchCommand is the test binary as a rank.
func benchCommand(role string, ranks int, arg string) RankCommand {
	return func(ctx context.Context, rank int) *exec.Cmd {
		return testgroup.Command(ctx, role, rank, ranks, 1, arg)
	}
}

func benchOf(tb testing.TB, b Bench) []Timing {
	tb.Helper()
	args, err := json.Marshal(b.RankBench)
	if err != nil {
		tb.Fatal(err)
	}
	b.Command = benchCommand("bench", b.Ranks, string(args))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	timings, err := b.Run(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	return timings
}

func TestBenchVerifiesAndTimesEveryPayload(t *testing.T) {
	payloads := benchPayloads(1024, 65536)
	payloads = append(payloads, Payload{Rows: 2, Width: 256, Fused: true})
	timings := benchOf(t, Bench{RankBench: RankBench{Name: "octet", Payloads: payloads, Iterations: 20, Floor: true}, Ranks: 4, Rounds: 2})
	if len(timings) != 4 {
		t.Fatalf("timings %+v, want one for each of 3 payloads and the floor", timings)
	}
	for _, tm := range timings {
		if tm.Median <= 0 || tm.P99 < tm.Median {
			t.Errorf("timing %+v makes no sense", tm)
		}
	}
}

func TestTheFirstRankThatFailsEndsTheOthers(t *testing.T) {
	_, err := RunProcesses(context.Background(), 3, 64, false, func(ctx context.Context, rank int) *exec.Cmd {
		role, spec := "bench", `{"Payloads":[{"Rows":1,"Width":64}],"Iterations":10000000}`
		if rank == 1 {
			role = "no such role"
		}
		return testgroup.Command(ctx, role, rank, 3, 1, spec)
	})
	if err == nil || !strings.Contains(err.Error(), "rank 1") {
		t.Errorf("the processes ended with %v", err)
	}
}

// BenchmarkAgainstMPI prints the table of `octet bench allreduce`. It needs OpenMPI.
func BenchmarkAgainstMPI(b *testing.B) {
	peers, err := MPIPeers(context.Background(), b.TempDir())
	if err != nil {
		b.Skip(err)
	}
	for _, ranks := range []int{2, 8} {
		b.Run(fmt.Sprintf("%d ranks", ranks), func(b *testing.B) {
			for range b.N {
				payloads := benchPayloads(1024, 8192, 65536, 262144, 1048576)
				payloads = append(payloads, Payload{Rows: 4, Width: 3584}, Payload{Rows: 4, Width: 3584, Fused: true},
					Payload{Rows: 4, Width: 3584, Fused: true, CommonResidual: true})
				timings := benchOf(b, Bench{
					RankBench: RankBench{Name: "octet", Payloads: payloads, Iterations: 400, Dedicated: ranks <= 2, Pin: true, Floor: true},
					Ranks:     ranks, Rounds: 3, Peers: peers,
				})
				fmt.Println("\n" + benchTable(timings))
			}
		})
	}
}

func benchTable(timings []Timing) string {
	ours := map[int]Timing{}
	var out strings.Builder
	for _, t := range timings {
		ratio := ""
		if t.Name == "octet" && !t.Fused && ours[t.Bytes].Bytes == 0 {
			ours[t.Bytes] = t
		} else if o, ok := ours[t.Bytes]; ok {
			ratio = fmt.Sprintf("octet/this %.2f", float64(o.Median)/float64(t.Median))
		}
		fmt.Fprintf(&out, "%-14s %8d B fused %-5v common %-5v median %10v p99 %10v %s\n", t.Name, t.Bytes, t.Fused, t.Common, t.Median, t.P99, ratio)
	}
	return out.String()
}

// BenchmarkFusedAgainstPlain compares the forms at the size of a verify pass.
func BenchmarkFusedAgainstPlain(b *testing.B) {
	payloads := []Payload{
		{Rows: 4, Width: 3584},
		{Rows: 4, Width: 3584, Fused: true},
		{Rows: 4, Width: 3584, Fused: true, CommonResidual: true},
	}
	for _, ranks := range []int{2, 8} {
		b.Run(fmt.Sprintf("%d ranks", ranks), func(b *testing.B) {
			for range b.N {
				bench := Bench{
					RankBench: RankBench{Name: "octet", Payloads: payloads, Iterations: 400, Dedicated: ranks <= 2, Pin: true},
					Ranks:     ranks, Rounds: 9,
				}
				fmt.Println("\n" + benchTable(benchOf(b, bench)))
			}
		})
	}
}

// BenchmarkAloneAllReduce is what an operation costs besides waiting.
func BenchmarkAloneAllReduce(b *testing.B) {
	g := newGroup(b, transport.Config{Ranks: 1, MaxRows: 1, MaxWidth: 256})
	for name, cfg := range configs {
		b.Run(name, func(b *testing.B) {
			m, err := g.Attach(0, transport.Polling{Timeout: limit})
			if err != nil {
				b.Fatal(err)
			}
			c, err := New(m, cfg)
			if err != nil {
				b.Fatal(err)
			}
			defer g.Reset(g.Epoch()+1, 0)
			for b.Loop() {
				slab, err := c.Partial(1, 256)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := c.AllReduce(slab, 1, 256); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
