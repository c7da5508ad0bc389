//go:build cuda

package cuda

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"
	"unsafe"
)

func bytesOf(v []uint16) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 2*len(v))
}

// call is one all-reduce of a random schedule; all ranks derive the same.
type call struct {
	form       Form
	fused      bool
	grid       Grid
	rows, cols int
}

func randomCall(rng *rand.Rand, maxCols int) call {
	c := call{form: Form(rng.IntN(3)), rows: 1 + rng.IntN(8), cols: 8 * (1 + rng.IntN(maxCols/8))}
	c.fused = c.form != Staged && rng.IntN(2) == 0
	c.grid = Grid{Blocks: 2 + rng.IntN(15), Threads: 32 * (4 + rng.IntN(13))}
	c.grid.Writers = 1 + rng.IntN(c.grid.Blocks-1)
	if c.fused && packets(c.cols) > 3*c.grid.Threads {
		c.grid.Threads = 512
	}
	return c
}

// buffers are the device tensors of a verifying rank.
type buffers struct{ in, out, residual, weight, normed uintptr }

func newBuffers(d *Device, bytes int) (b buffers, err error) {
	for _, p := range []*uintptr{&b.in, &b.out, &b.residual, &b.weight, &b.normed} {
		if *p, err = d.Alloc(bytes); err != nil {
			return b, err
		}
	}
	return b, nil
}

// check runs c with the data of one seed and compares with the contract.
func (m *member) check(b buffers, c call, seed uint64) error {
	n := c.rows * c.cols
	in := make([][]uint16, m.ranks)
	for r := range in {
		in[r] = randomBF16(n, seed, uint64(r))
	}
	sum := reduceReference(in)
	poison := bytes.Repeat([]byte{0xff}, 2*n)
	if err := m.device.Write(b.in, bytesOf(in[m.rank])); err != nil {
		return err
	}
	if !c.fused {
		if err := m.device.Write(b.out, poison); err != nil {
			return err
		}
		if err := m.exchange.AllReduce(c.form, c.grid, b.out, b.in, n); err != nil {
			return err
		}
		return m.compare("sum", c, b.out, sum)
	}
	const eps = 1e-6
	residual, weight := randomBF16(n, seed, 100), randomBF16(c.cols, seed, 101)
	for p, v := range map[uintptr][]byte{b.residual: bytesOf(residual), b.weight: bytesOf(weight), b.normed: poison} {
		if err := m.device.Write(p, v); err != nil {
			return err
		}
	}
	f := Fusion{Residual: b.residual, Weight: b.weight, Normed: b.normed, Eps: eps}
	if err := m.exchange.AllReduceNorm(c.form, c.grid, f, b.in, c.rows, c.cols); err != nil {
		return err
	}
	normed := normReference(residual, sum, weight, eps)
	if err := m.compare("residual", c, b.residual, residual); err != nil {
		return err
	}
	return m.compare("normed", c, b.normed, normed)
}

func (m *member) compare(what string, c call, p uintptr, want []uint16) error {
	got := make([]uint16, len(want))
	if err := m.device.Read(bytesOf(got), p); err != nil {
		return err
	}
	if Aborted(m.exchange.config.Control) {
		return fmt.Errorf("rank %d: %+v aborted: %+v", m.rank, c, Blames(m.exchange.config.Control))
	}
	for i := range want {
		if got[i] != want[i] {
			return fmt.Errorf("rank %d: %+v: %s[%d] = %#04x, want %#04x", m.rank, c, what, i, got[i], want[i])
		}
	}
	return nil
}

// clusterCalls are fused calls by clusters of blocks, which need sm_90.
func clusterCalls(rng *rand.Rand) []call {
	var calls []call
	for range 100 {
		cluster := 2 + rng.IntN(7)
		segments := cluster * (1 + rng.IntN(max(1, 16/cluster)))
		rows := 1 + rng.IntN(8)
		calls = append(calls, call{
			form: OneShot, fused: true, rows: rows, cols: 512 * segments, grid: Grid{
				Blocks: cluster * (1 + rng.IntN(rows)), Threads: (packets(512*segments/cluster) + 31) &^ 31, Cluster: cluster,
			},
		})
	}
	return calls
}

// verifyJob checks random calls around both wraps of the operation number.
func verifyJob(m *member) error {
	b, err := newBuffers(m.device, maxBytes)
	if err != nil {
		return err
	}
	for _, first := range []uint32{0, 1<<31 - 20, 1<<32 - 40} {
		if first != 0 {
			if err := m.exchange.Close(); err != nil {
				return err
			}
			if err := m.join(5*time.Second, first); err != nil {
				return err
			}
		}
		rng := rand.New(rand.NewPCG(uint64(first), 7))
		for i := range fromEnvironment("OCTET_CUDA_CALLS", 200) {
			c := randomCall(rng, 8192)
			if err := m.check(b, c, uint64(first)+uint64(i)); err != nil {
				return fmt.Errorf("call %d: %w", i, err)
			}
		}
		for i, c := range clusterCalls(rng) {
			if err := m.check(b, c, uint64(first)+uint64(1000+i)); err != nil {
				return fmt.Errorf("call %d of sm_90: %w", i, err)
			}
		}
		if err := m.barrier(); err != nil {
			return err
		}
	}
	return nil
}

func TestTwoDevicesReduceByTheContract(t *testing.T) {
	for _, host := range []bool{false, true} {
		t.Run(map[bool]string{false: "peer", true: "host"}[host], func(t *testing.T) {
			needDevices(t, deviceRanks())
			startGroup(t, "verify", deviceRanks(), deviceRanks(), host).wait(t)
		})
	}
}

// TestProcessesShareADevice makes 200 calls, or 10,000 where MPS runs: without
// it the driver gives each process a slice of milliseconds in turn.
func TestProcessesShareADevice(t *testing.T) {
	needDevices(t, 1)
	g := startGroup(t, "oversubscribed", 8, 1, false)
	calls := uint32(200)
	if os.Getenv("CUDA_MPS_PIPE_DIRECTORY") != "" {
		calls = 10000
	}
	g.segment.Word(wordsAt).Store(calls)
	g.wait(t)
}

func oversubscribedJob(m *member) error {
	calls := int(m.word(wordsAt).Load())
	b, err := newBuffers(m.device, 64<<10)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(3, 3))
	begin := time.Now()
	for i := range calls {
		c := randomCall(rng, 512)
		c.grid.Blocks = 2 + c.grid.Blocks%3
		c.grid.Writers = 1
		if err := m.check(b, c, uint64(i)); err != nil {
			return fmt.Errorf("call %d: %w", i, err)
		}
	}
	if m.rank == 0 {
		fmt.Printf("%d processes on one device: %d calls equal to the contract, %v a call with its check\n", m.ranks, calls,
			(time.Since(begin) / time.Duration(calls)).Round(time.Microsecond))
	}
	return m.barrier()
}

// benchCase is a row of the table of timings.
type benchCase struct {
	name  string
	form  Form
	fused bool
	grid  func(bytes int) Grid
	// choose, if set, is asked instead for form and grid.
	choose func(bytes int) Choice
}

func (c benchCase) at(bytes int) Choice {
	if c.choose != nil {
		return c.choose(bytes)
	}
	return Choice{c.form, c.grid(bytes)}
}

const benchCols = 7168

// perPacket is a grid of one thread a packet, in blocks of the given threads.
func perPacket(threads, most int) func(int) Grid {
	return func(bytes int) Grid {
		return Grid{Blocks: min((packets(bytes/2)+threads-1)/threads, most), Threads: threads}
	}
}

// perRow is a block a row, some packets a thread.
func perRow(each int) func(int) Grid {
	return func(bytes int) Grid {
		return Grid{Blocks: bytes / (2 * benchCols), Threads: (packets(benchCols)/each + 32) &^ 31}
	}
}

// tiles is two blocks a tile, up to so many.
func tiles(threads, most int) func(int) Grid {
	return func(bytes int) Grid {
		writers := max(1, min(bytes/4096, most/2))
		return Grid{Blocks: 2 * writers, Threads: threads, Writers: writers}
	}
}

// perPiece is a cluster of blocks a row.
func perPiece(cluster int) func(int) Grid {
	return func(bytes int) Grid {
		return Grid{Blocks: bytes / (2 * benchCols) * cluster, Threads: (packets(benchCols/cluster) + 31) &^ 31, Cluster: cluster}
	}
}

var benchCases = []benchCase{
	{name: "one-shot 64", form: OneShot, fused: false, grid: perPacket(64, 512)},
	{name: "one-shot 128", form: OneShot, fused: false, grid: perPacket(128, 512)},
	{name: "one-shot 256", form: OneShot, fused: false, grid: perPacket(256, 264)},
	{name: "one-shot 512", form: OneShot, fused: false, grid: perPacket(512, 264)},
	{name: "two-shot 256", form: TwoShot, fused: false, grid: perPacket(256, 132)},
	{name: "staged 16x1024", form: Staged, fused: false, grid: tiles(1024, 16)},
	{name: "staged 32x1024", form: Staged, fused: false, grid: tiles(1024, 32)},
	{name: "staged 32x512", form: Staged, fused: false, grid: tiles(512, 32)},
	{name: "staged 64x512", form: Staged, fused: false, grid: tiles(512, 64)},
	{name: "staged 128x512", form: Staged, fused: false, grid: tiles(512, 128)},
	{name: "staged 256x256", form: Staged, fused: false, grid: tiles(256, 256)},
	{name: "fused cluster 7", form: OneShot, fused: true, grid: perPiece(7)},
	{name: "fused cluster 2", form: OneShot, fused: true, grid: perPiece(2)},
	{name: "fused 2 a thread", form: OneShot, fused: true, grid: perRow(2)},
	{name: "fused 3 a thread", form: OneShot, fused: true, grid: perRow(3)},
	{name: "fused two-shot", form: TwoShot, fused: true, grid: perRow(2)},
}

var benchTokens = []int{1, 4, 8, 16, 32, 64}

// benchJob times graphs of 122 calls.
func benchJob(m *member) error {
	b, err := newBuffers(m.device, maxBytes)
	if err != nil {
		return err
	}
	for i, p := range []uintptr{b.in, b.residual, b.weight} {
		if err := m.device.Write(p, bytesOf(randomBF16(maxBytes/2, 9, uint64(m.rank*10+i)))); err != nil {
			return err
		}
	}
	cases := slices.Concat(m.policyCases(), benchCases)
	for _, c := range cases {
		line := fmt.Sprintf("%-16s", c.name)
		for _, tokens := range benchTokens {
			t, err := m.timeCalls(b, c, tokens)
			if err != nil {
				return fmt.Errorf("%s, %d tokens: %w", c.name, tokens, err)
			}
			line += fmt.Sprintf(" %8.2f", t)
		}
		if m.rank == 0 {
			fmt.Println(line)
		}
	}
	return nil
}

// policyCases is what Policy chooses, plain and fused: what a group of ranks runs.
func (m *member) policyCases() []benchCase {
	p := Policy{Ranks: m.ranks, Host: m.host, Clusters: m.device.Capability() >= 9, Blocks: 4 * m.device.Processors()}
	return []benchCase{
		{name: "policy", choose: func(bytes int) Choice { return p.Plain(bytes / 2) }},
		{name: "policy fused", fused: true, choose: func(bytes int) Choice { return p.Fused(bytes/(2*benchCols), benchCols) }},
	}
}

// timeCalls is the median over replays, in microseconds a call.
func (m *member) timeCalls(b buffers, c benchCase, tokens int) (float64, error) {
	const calls, replays = 122, 21
	count := tokens * benchCols
	at := c.at(2 * count)
	enqueue := func() error {
		for range calls {
			var err error
			if c.fused {
				err = m.exchange.AllReduceNorm(at.Form, at.Grid,
					Fusion{Residual: b.residual, Weight: b.weight, Normed: b.normed, Eps: 1e-6}, b.in, tokens, benchCols)
			} else {
				err = m.exchange.AllReduce(at.Form, at.Grid, b.out, b.in, count)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	if err := enqueue(); err != nil { // loads the module outside of capture
		return 0, err
	}
	if err := m.device.Sync(); err != nil {
		return 0, err
	}
	g, err := m.device.Capture(enqueue)
	if err != nil {
		return 0, err
	}
	var times []time.Duration
	for range replays {
		if err := m.barrier(); err != nil {
			return 0, err
		}
		t, err := m.device.Time(g.Launch)
		if err != nil {
			return 0, err
		}
		if Aborted(m.exchange.config.Control) {
			return 0, fmt.Errorf("aborted: %+v", Blames(m.exchange.config.Control))
		}
		times = append(times, t)
	}
	slices.Sort(times)
	return float64(times[replays/2].Nanoseconds()) / 1e3 / calls, g.Close()
}

func BenchmarkTwoDevices(b *testing.B) {
	for _, host := range []bool{false, true} {
		name := map[bool]string{false: "peer memory", true: "host memory"}[host]
		ranks := deviceRanks()
		needDevices(b, ranks)
		fmt.Printf("%s, %d ranks, us a call, bf16 rows of %d: %v tokens\n", name, ranks, benchCols, benchTokens)
		startGroup(b, "bench", ranks, ranks, host).wait(b)
	}
}
