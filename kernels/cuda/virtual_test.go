//go:build cuda

package cuda

import (
	_ "embed"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"
)

// virtualRank is src/allreduce.cu's struct of that name.
type virtualRank struct {
	x                        exchangeParams
	in, out                  uint64
	residual, weight, normed uint64
	inverseCols              inverse
	eps                      float32
	_                        uint32
}

// virtualGroup is eight ranks on one device, run by one cooperative launch.
type virtualGroup struct {
	device    *Device
	exchanges []*Exchange
	memory    uintptr // in, out, residual, normed of each rank, then one weight
	ranks     uintptr // [virtualRanks]virtualRank on the device
}

//go:embed testdata/allreduce_virtual.ptx
var virtualPTX string

const (
	virtualRanks  = 8
	virtualValues = 4096 // of one tensor of one rank
)

func (g *virtualGroup) tensor(kind, rank int) uintptr {
	return g.memory + uintptr(2*virtualValues*(kind*virtualRanks+rank))
}

func newVirtualGroup(t *testing.T) *virtualGroup {
	t.Helper()
	d, err := Open(0)
	if err != nil {
		t.Fatal(err)
	}
	g := &virtualGroup{device: d}
	if d.modules["allreduce_virtual"], err = loadModule("allreduce_virtual", virtualPTX); err != nil {
		t.Fatal(err)
	}
	control := make([]byte, (virtualRanks+1)*os.Getpagesize())
	page := os.Getpagesize() - int(uintptr(unsafe.Pointer(&control[0])))%os.Getpagesize()
	t.Cleanup(func() {
		for _, e := range g.exchanges {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		runtime.KeepAlive(control)
	})
	inboxes := make([]uintptr, virtualRanks)
	for r := range virtualRanks {
		e, err := NewExchange(d, ExchangeConfig{
			Rank: r, Ranks: virtualRanks, MaxBytes: 2 * virtualValues, FirstOp: 1<<32 - 5000,
			Control: control[page+r*os.Getpagesize():][:ControlBytes],
		})
		if err != nil {
			t.Fatal(err)
		}
		g.exchanges, inboxes[r] = append(g.exchanges, e), e.inbox
	}
	if g.memory, err = d.Alloc(2 * virtualValues * (4*virtualRanks + 1)); err != nil {
		t.Fatal(err)
	}
	ranks := make([]virtualRank, virtualRanks)
	for r, e := range g.exchanges {
		e.connectTo(inboxes)
		ranks[r] = virtualRank{
			x: e.params, in: uint64(g.tensor(0, r)), out: uint64(g.tensor(1, r)), residual: uint64(g.tensor(2, r)),
			normed: uint64(g.tensor(3, r)), weight: uint64(g.tensor(4, 0)), eps: 1e-6,
		}
	}
	if g.ranks, err = d.Alloc(virtualRanks * int(unsafe.Sizeof(ranks[0]))); err != nil {
		t.Fatal(err)
	}
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&ranks[0])), virtualRanks*int(unsafe.Sizeof(ranks[0])))
	if err := d.Write(g.ranks, raw); err != nil {
		t.Fatal(err)
	}
	return g
}

// run enqueues one call of all ranks; fill gives the values of the tensors, or nil
// to leave one as it is.
func (g *virtualGroup) run(c call, fill func(kind, rank int) []uint16) error {
	for kind := range 5 {
		for r := range virtualRanks {
			if v := fill(kind, r); v != nil {
				if err := g.device.Write(g.tensor(kind, r), bytesOf(v)); err != nil {
					return err
				}
			}
		}
	}
	f, err := g.device.function("allreduce_virtual", "virtual_ranks")
	if err != nil {
		return err
	}
	form := uint64(c.form)
	if c.fused {
		form += 3
	}
	return launchCooperative(f, c.grid.Blocks, virtualRanks, c.grid.Threads, g.device.stream,
		[]uint64{uint64(g.ranks), form, uint64(c.rows), uint64(c.cols / 2), uint64(c.grid.Writers)})
}

func (g *virtualGroup) read(t *testing.T, kind, rank, n int) []uint16 {
	t.Helper()
	out := make([]uint16, n)
	if err := g.device.Read(bytesOf(out), g.tensor(kind, rank)); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestEightVirtualRanksReduceByTheContract makes random calls of every form, on
// across the wrap of the operation number.
func TestEightVirtualRanksReduceByTheContract(t *testing.T) {
	needDevices(t, 1)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	g := newVirtualGroup(t)
	calls := 10000
	if testing.Short() {
		calls = 300
	}
	rng := rand.New(rand.NewPCG(8, 8))
	begin := time.Now()
	for i := range calls {
		c := randomCall(rng, 512)
		g.check(t, i, c)
	}
	t.Logf("%d calls over %d virtual ranks equal to the contract in %v", calls, virtualRanks, time.Since(begin).Round(time.Millisecond))
}

func (g *virtualGroup) check(t *testing.T, i int, c call) {
	t.Helper()
	n, seed := c.rows*c.cols, uint64(i)
	in := make([][]uint16, virtualRanks)
	for r := range in {
		in[r] = randomBF16(n, seed, uint64(r))
	}
	residual, weight := randomBF16(n, seed, 100), randomBF16(c.cols, seed, 101)
	poison := randomBF16(n, ^seed, 0)
	err := g.run(c, func(kind, rank int) []uint16 {
		switch kind {
		case 0:
			return in[rank]
		case 2:
			return residual
		case 4:
			if rank == 0 {
				return weight
			}
			return nil
		}
		return poison
	})
	if err != nil {
		t.Fatalf("call %d: %+v: %v", i, c, err)
	}
	want, sum := map[int][]uint16{}, reduceReference(in)
	if c.fused {
		normed := normReference(residual, sum, weight, 1e-6)
		want[2], want[3] = residual, normed
	} else {
		want[1] = sum
	}
	for kind, values := range want {
		for r := range virtualRanks {
			got := g.read(t, kind, r, n)
			for j := range values {
				if got[j] != values[j] {
					t.Fatalf("call %d: %+v: tensor %d of rank %d: [%d] = %#04x, want %#04x; %+v", i, c, kind, r, j, got[j], values[j],
						Blames(g.exchanges[r].config.Control))
				}
			}
		}
	}
}
