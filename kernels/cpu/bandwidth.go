package cpu

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// probePasses is how often ReadProbe.Measure reads its memory.
const probePasses = 7

// ReadProbe measures how fast threads read memory: the bound of a product with
// few rows. Its memory is anonymous, of large pages where there are any, which is
// the fastest there is, and stays mapped from one measurement to the next: to map
// and unmap so much empties what processor and hypervisor know of the addresses of
// the weights, and the product measured next would pay for that.
type ReadProbe struct {
	threads int
	memory  []byte
}

// NewReadProbe takes memory of the given size, which the threads will read
// together, each its own part. Take several times the last-level cache.
func NewReadProbe(threads, bytes int) (*ReadProbe, error) {
	if threads < 1 || bytes < threads*blockOfRead {
		return nil, fmt.Errorf("cpu: measure bandwidth of %d bytes on %d threads: give a thread at least %d bytes", bytes, threads, blockOfRead)
	}
	memory, err := mapAnonymous(bytes, true)
	if err != nil {
		return nil, err
	}
	for i := 0; i < bytes; i += 4096 { // untouched pages are all one page of zeros
		memory[i] = 1
	}
	return &ReadProbe{threads: threads, memory: memory}, nil
}

// Measure returns the bytes read a second: the median of a few passes.
func (p *ReadProbe) Measure() float64 {
	seconds := make([]float64, probePasses)
	for i := range seconds {
		seconds[i] = readOnce(p.threads, p.memory)
	}
	slices.Sort(seconds)
	return float64(len(p.memory)) / seconds[probePasses/2]
}

// Close frees the memory.
func (p *ReadProbe) Close() error {
	memory := p.memory
	p.memory = nil
	return unmap(memory)
}

// readOnce returns the seconds that one pass over memory takes.
func readOnce(threads int, memory []byte) float64 {
	part := len(memory) / threads
	var readers sync.WaitGroup
	start := time.Now()
	for i := 1; i < threads; i++ {
		readers.Go(func() { read(memory[i*part : (i+1)*part]) })
	}
	read(memory[:part])
	readers.Wait()
	return time.Since(start).Seconds()
}
