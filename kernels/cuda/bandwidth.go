//go:build cuda

package cuda

import (
	"errors"
	"slices"
	"time"
)

const (
	bandwidthBytes = 4 << 30 // far more than the caches hold
	bandwidthRuns  = 11
)

// readCall is what read_stream takes.
type readCall struct{ p, count, sink uint64 }

// ReadBandwidth measures a kernel that reads memory and does nothing else, in bytes
// a second: the ceiling of whatever is bound by memory.
func (d *Device) ReadBandwidth() (rate float64, err error) {
	f, err := d.function("bench", "read_stream")
	if err != nil {
		return 0, err
	}
	p, err := d.Alloc(bandwidthBytes)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, d.Free(p)) }()
	params := readCall{uint64(p), bandwidthBytes / 16, uint64(p)}
	var times []time.Duration
	for range bandwidthRuns {
		took, err := d.Time(func() error {
			return launchPacked(f, grid{x: 4 * d.Processors(), threads: 512}, d.stream, &params)
		})
		if err != nil {
			return 0, err
		}
		times = append(times, took)
	}
	slices.Sort(times)
	return bandwidthBytes / times[bandwidthRuns/2].Seconds(), nil
}
