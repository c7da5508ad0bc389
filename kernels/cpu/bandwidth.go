package cpu

import (
	"fmt"
	"slices"
	"time"
)

// probePasses is how often ReadProbe.Measure reads its memory.
const probePasses = 7

// ReadProbe measures how fast a Backend's own threads read memory: the bound of a
// product with few rows. Its memory is anonymous, of large pages where there are any,
// which is the fastest there is, and stays mapped from one measurement to the next: to
// map and unmap so much empties what processor and hypervisor know of the addresses of
// the weights, and the product measured next would pay for that.
type ReadProbe struct {
	team   *team
	memory []byte
}

// NewReadProbe takes memory of the given size, which the threads will read together.
// Take several times the last-level cache. Close it before the Backend.
func (b *Backend) NewReadProbe(bytes int) (*ReadProbe, error) {
	if threads := len(b.team.workers); bytes < threads*blockOfRead {
		return nil, fmt.Errorf("cpu: measure bandwidth of %d bytes on %d threads: give a thread at least %d bytes", bytes, threads, blockOfRead)
	}
	memory, err := mapAnonymous(bytes, true)
	if err != nil {
		return nil, err
	}
	for i := 0; i < bytes; i += 4096 { // untouched pages are all one page of zeros
		memory[i] = 1
	}
	return &ReadProbe{team: b.team, memory: memory}, nil
}

// Measure returns the bytes read a second: the median of a few passes.
func (p *ReadProbe) Measure() float64 {
	seconds := make([]float64, probePasses)
	for i := range seconds {
		start := time.Now()
		p.team.read(p.memory)
		seconds[i] = time.Since(start).Seconds()
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

// reading is a pass over memory, shared as the weights of a product are.
type reading struct{ memory []byte }

// readingUnit is a multiple of blockOfRead.
const readingUnit = 1 << 20

func (r *reading) unit(_ *worker, i int) {
	read(r.memory[i*readingUnit : min((i+1)*readingUnit, len(r.memory))])
}

// read loads all of memory.
func (t *team) read(memory []byte) {
	t.run(&reading{memory}, (len(memory)+readingUnit-1)/readingUnit)
}
