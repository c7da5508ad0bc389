//go:build cuda

package rank

import (
	"errors"
	"fmt"
	"math"
	"syscall"
	"time"
	"unsafe"

	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/kernels/cuda"
)

// gpu is a device that is one.
type gpu struct {
	*cuda.Backend
	sharers int // ranks on this device
	pinned  [][]byte
}

// openDevice opens the rank's GPU on the calling thread.
func openDevice(c *Config, rank int, beat func()) (device, error) {
	address := c.Devices[rank%len(c.Devices)]
	b, err := cuda.New(cuda.Config{PCI: address})
	if err != nil {
		return nil, fmt.Errorf("rank %d: GPU %s: %w", rank, address, err)
	}
	if err := b.Load(beat); err != nil {
		return nil, errors.Join(fmt.Errorf("rank %d: GPU %s: %w", rank, address, err), b.Close())
	}
	g := &gpu{Backend: b}
	for _, d := range c.Devices {
		if d == address {
			g.sharers++
		}
	}
	return g, nil
}

func (g *gpu) hostMemory(bytes int) ([]byte, error) {
	memory, err := syscall.Mmap(-1, 0, bytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of host memory: %w", bytes, err)
	}
	if _, err := g.Device().RegisterHost(memory); err != nil {
		return nil, errors.Join(err, syscall.Munmap(memory))
	}
	g.pinned = append(g.pinned, memory)
	return memory, nil
}

// Close frees the device and the memory that was pinned for it.
func (g *gpu) Close() error {
	errs := []error{g.Sync()}
	for _, memory := range g.pinned {
		errs = append(errs, g.Device().UnregisterHost(memory), syscall.Munmap(memory))
	}
	return errors.Join(append(errs, g.Backend.Close())...)
}

func (g *gpu) record(b *kernels.Batch, pass func()) (recording, error) { return g.Record(b, pass) }

func (g *gpu) replay(r recording, b *kernels.Batch) bool { return g.Replay(r.(*cuda.Recording), b) }

func (g *gpu) capability() capability {
	// Four blocks of 512 threads fit a multiprocessor.
	return capability{major: g.Device().Capability(), blocks: max(8, 4*g.Device().Processors()/max(g.sharers, 1))}
}

func (g *gpu) readBandwidth() (float64, error) { return g.Device().ReadBandwidth() }

// gpuEnd is an exchange and the policy that chooses its launches.
type gpuEnd struct {
	*cuda.Exchange
	gpu    *gpu
	policy cuda.Policy
	config endConfig
}

func (g *gpu) end(c endConfig) (end, error) {
	x, err := cuda.NewExchange(g.Device(), cuda.ExchangeConfig{
		Rank: c.rank, Ranks: c.ranks, MaxBytes: exchangeBytes, Timeout: c.config.CollectiveTimeout, Control: c.control, Host: c.host,
	})
	if err != nil {
		return nil, err
	}
	e := &gpuEnd{Exchange: x, gpu: g, config: c, policy: cuda.Policy{
		Ranks: c.ranks, Host: c.path == hostPath, Clusters: c.common.major >= 9, Blocks: c.common.blocks,
	}}
	// Compiled now: a rank that compiles is one that the others wait for.
	if err := x.Load(e.policy.Clusters); err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return e, nil
}

func (e *gpuEnd) handle() (cuda.Handle, error)        { return e.Handle() }
func (e *gpuEnd) connect(handles []cuda.Handle) error { return e.Connect(handles) }

func (e *gpuEnd) reduce(dst, src kernels.Tensor) error {
	count := src.Rows * src.Cols
	c := e.policy.Plain(count)
	return e.AllReduce(c.Form, c.Grid, dst.Device, src.Device, count)
}

func (e *gpuEnd) reduceAddNorm(normed, residual, src, weight kernels.Tensor, eps float32) error {
	c := e.policy.Fused(src.Rows, src.Cols)
	f := cuda.Fusion{Residual: residual.Device, Weight: weight.Device, Normed: normed.Device, Eps: eps}
	return e.AllReduceNorm(c.Form, c.Grid, f, src.Device, src.Rows, src.Cols)
}

// checkTimeout bounds a wait of the check, in which all ranks begin together.
const checkTimeout = 5 * time.Second

// check sums small whole numbers, which bf16 holds exactly, at the sizes that the
// policy reduces differently.
func (e *gpuEnd) check(width int) error {
	e.SetTimeout(checkTimeout * time.Duration(max(e.gpu.sharers, 1)))
	defer e.SetTimeout(e.config.config.CollectiveTimeout)
	d := e.gpu.Device()
	in, err := d.Alloc(exchangeBytes)
	if err != nil {
		return err
	}
	out, err := d.Alloc(exchangeBytes)
	if err == nil {
		for _, rows := range []int{1, 3, 16, exchangeBytes / (2 * width)} {
			if err = e.checkRows(in, out, rows, width); err != nil {
				break
			}
		}
		err = errors.Join(err, d.Free(out))
	}
	return errors.Join(err, d.Free(in))
}

func (e *gpuEnd) checkRows(in, out uintptr, rows, width int) error {
	d, count := e.gpu.Device(), rows*width
	mine, got := make([]uint16, count), make([]uint16, count)
	for i := range mine {
		mine[i] = bf16Of(checkValue(e.config.rank, i))
		got[i] = 0xffff
	}
	tensor := func(p uintptr) kernels.Tensor {
		return kernels.Tensor{DType: kernels.BF16, Rows: rows, Cols: width, Stride: width, Device: p}
	}
	err := errors.Join(d.Write(in, rawBytes(mine)), d.Write(out, rawBytes(got)))
	if err == nil {
		err = e.reduce(tensor(out), tensor(in))
	}
	if err == nil {
		err = d.Read(rawBytes(got), out)
	}
	if err != nil {
		return err
	}
	if cuda.Aborted(e.config.control) {
		return fmt.Errorf("an all-reduce of %d bytes did not end: %+v", 2*count, cuda.Blames(e.config.control))
	}
	for i, v := range got {
		sum := 0
		for r := range e.config.ranks {
			sum += checkValue(r, i)
		}
		if v != bf16Of(sum) {
			return fmt.Errorf("an all-reduce of %d bytes yields %#04x for value %d, %#04x is right", 2*count, v, i, bf16Of(sum))
		}
	}
	return nil
}

// checkValue is below 16, so that eight of them are below 128.
func checkValue(rank, i int) int { return (i*7 + i/64 + rank*5) % 16 }

func rawBytes(v []uint16) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 2*len(v))
}

// bf16Of is a whole number below 256, which bf16 holds exactly.
func bf16Of(n int) uint16 { return uint16(math.Float32bits(float32(n)) >> 16) }
