package cpu

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/octet-run/octet/kernels"
)

// Products whose weights are far beyond the caches, next to plain reading of the
// same memory. The x-stream metrics are how many times as long as reading the
// weights once a product of so many rows takes: medians of interleaved passes,
// on one thread of its processor time, which neighbours disturb less.
func BenchmarkMatMulFromMemory(b *testing.B) {
	const out, in = 9216, 7168
	for _, name := range []string{"bf16", "fp8", "int4"} {
		w := benchMatrix(b, name, out, in)
		for isa := AVX2; isa <= Detect(); isa++ {
			for _, threads := range []int{1, 2} {
				b.Run(fmt.Sprintf("%s/%v/threads=%d", name, isa, threads), func(b *testing.B) {
					againstReading(b, newBackend(b, Config{ISA: isa, Threads: threads}), threads, w)
				})
			}
		}
	}
}

func againstReading(b *testing.B, c *Backend, threads int, w kernels.Matrix) {
	s := newSource(20)
	rows := []int{1, 2, 4, 6, 8, 16}
	seconds := make([][]float64, len(rows)+1)
	memory := wholeOf(w.Data)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for b.Loop() {
		seconds[0] = append(seconds[0], timed(threads, func() { c.team.read(memory) }))
		for i, t := range rows {
			x, dst := s.f32(t, w.In), s.f32(t, w.Out)
			seconds[i+1] = append(seconds[i+1], timed(threads, func() { c.MatMul(dst, x, w) }))
		}
	}
	median := func(x []float64) float64 { slices.Sort(x); return x[len(x)/2] }
	reading := median(seconds[0])
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(len(memory))/reading/1e9, "read-GB/s")
	for i, t := range rows {
		b.ReportMetric(median(seconds[i+1])/reading, fmt.Sprintf("T%02d-x-stream", t))
	}
}

// timed returns the seconds of f: of the thread's processor time if it is alone.
func timed(threads int, f func()) float64 {
	clock := func() float64 {
		var t unix.Timespec
		which := int32(unix.CLOCK_THREAD_CPUTIME_ID)
		if threads > 1 {
			which = unix.CLOCK_MONOTONIC
		}
		if err := unix.ClockGettime(which, &t); err != nil {
			panic(err)
		}
		return float64(t.Nano()) / 1e9
	}
	start := clock()
	f()
	return clock() - start
}

// Weights that fit the second-level cache: the cost of computing, in processor
// time of the thread.
func BenchmarkMatMulFromCache(b *testing.B) {
	benchmarkComputing(b, 128, 2048, []int{1, 2, 4, 6, 8, 16})
}

// A piece of a prompt.
func BenchmarkMatMulOfManyRows(b *testing.B) {
	benchmarkComputing(b, 1024, 7168, []int{64, 256})
}

func benchmarkComputing(b *testing.B, out, in int, rows []int) {
	s := newSource(20)
	for _, name := range []string{"bf16", "fp8", "int4", "f32"} {
		w := benchMatrix(b, name, out, in)
		for isa := AVX2; isa <= Detect(); isa++ {
			for _, t := range rows {
				b.Run(fmt.Sprintf("%s/%v/rows=%d", name, isa, t), func(b *testing.B) {
					c := newBackend(b, Config{ISA: isa})
					x, dst := s.f32(t, in), s.f32(t, out)
					reportMedian(b, float64(2*t*out*in), func() { c.MatMul(dst, x, w) })
				})
			}
		}
	}
}

// benchMatrix fills every page: untouched ones would all be one page of zeros.
func benchMatrix(b *testing.B, name string, out, in int) kernels.Matrix {
	c := newBackend(b, Config{})
	alloc := func(d kernels.DType, rows, cols int) kernels.Tensor {
		t, err := c.Alloc(d, rows, cols)
		if err != nil {
			b.Fatal(err)
		}
		for i, p := 0, wholeOf(t); i < len(p); i += 4096 {
			p[i] = 1
		}
		return t
	}
	w := kernels.Matrix{Out: out, In: in}
	switch name {
	case "bf16":
		w.Data = alloc(kernels.BF16, out, in)
	case "f32":
		w.Data = alloc(kernels.F32, out, in)
	case "fp8":
		w.Format, w.Data, w.Scale = kernels.FP8Block, alloc(kernels.F8E4M3, out, in), alloc(kernels.F32, (out+127)/128, (in+127)/128)
	case "int4":
		w.Format, w.Data, w.Scale = kernels.INT4Group, alloc(kernels.I32, out, in/8), alloc(kernels.BF16, out, in/32)
	}
	return w
}

// wholeOf is the memory of a tensor without gaps.
func wholeOf(t kernels.Tensor) []byte {
	return kernels.Tensor{DType: kernels.U8, Rows: 1, Cols: t.ByteLen(), Host: t.Host}.ByteRow(0)
}
