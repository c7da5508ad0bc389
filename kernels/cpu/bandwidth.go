package cpu

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// bandwidthPasses is how often MeasureReadBandwidth reads its memory.
const bandwidthPasses = 7

// MeasureReadBandwidth returns how many bytes a second the given number of
// threads read together from memory of the given size, each its own part: the
// bound of a product with few rows. Take several times the last-level cache.
// The median of a few passes is returned.
func MeasureReadBandwidth(threads, bytes int) (float64, error) {
	if threads < 1 || bytes < threads*blockOfRead {
		return 0, fmt.Errorf("cpu: measure bandwidth of %d bytes on %d threads: give a thread at least %d bytes", bytes, threads, blockOfRead)
	}
	memory, err := mapAnonymous(bytes, true)
	if err != nil {
		return 0, err
	}
	for i := 0; i < bytes; i += 4096 { // untouched pages are all one page of zeros
		memory[i] = 1
	}
	seconds := make([]float64, bandwidthPasses)
	for i := range seconds {
		seconds[i] = readOnce(threads, memory)
	}
	slices.Sort(seconds)
	return float64(bytes) / seconds[bandwidthPasses/2], unmap(memory)
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
