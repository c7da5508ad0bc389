package rank

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"github.com/octet-run/octet/collectives"
	"github.com/octet-run/octet/kernels/cuda"
)

// meeting is how the ranks of a group find a path between their GPUs: over the
// host's collectives, step by step, so that all take the same path or none does.
type meeting struct {
	comm   *collectives.Communicator
	device device
	config *Config
	at     Place
	width  int // values of a row
}

// connectDevices makes this rank's end of the epoch's all-reduces, over peer
// memory where that works and yields the right bits for every rank, else over host
// memory. RequireFast refuses the second.
func connectDevices(m meeting) (end, path, error) {
	if err := cuda.AdmitsRows(m.width); err != nil {
		return nil, 0, err
	}
	if len(m.at.Device) < DeviceBytes(m.at.Ranks) {
		return nil, 0, fmt.Errorf("the supervisor handed over %d bytes for the GPUs' collectives, %d are needed", len(m.at.Device), DeviceBytes(m.at.Ranks))
	}
	common, err := m.common()
	if err != nil {
		return nil, 0, err
	}
	var refused []error
	for _, p := range []path{peerPath, hostPath} {
		e, why, err := m.try(p, common)
		switch {
		case err != nil:
			return nil, 0, err
		case why == nil:
			return e, p, nil
		}
		refused = append(refused, fmt.Errorf("%v: %w", p, why))
		if m.config.RequireFast {
			return nil, 0, fmt.Errorf("the fast path is required and cannot be had: %w", errors.Join(refused...))
		}
	}
	return nil, 0, fmt.Errorf("no path between the GPUs works: %w", errors.Join(refused...))
}

// common is the least capability of all ranks' devices.
func (m *meeting) common() (capability, error) {
	mine := m.device.capability()
	words, err := m.gather(int32(mine.major), int32(mine.blocks))
	if err != nil {
		return mine, err
	}
	for _, w := range words {
		mine.major, mine.blocks = min(mine.major, int(w[0])), min(mine.blocks, int(w[1]))
	}
	return mine, nil
}

// try goes through the steps of connecting over p. Where a step fails on any rank,
// all stop there and why says it; err is a failure of the group itself.
func (m *meeting) try(p path, common capability) (e end, why, err error) {
	host := m.at.Device[hostOff:][:cuda.HostBytes(m.at.Ranks, exchangeBytes)]
	c := endConfig{
		rank: m.at.Rank, ranks: m.at.Ranks, path: p, common: common, control: control(m.at.Device, p), config: m.config,
	}
	if p == hostPath {
		// A page belongs to the node of who touches it first: its writer.
		touch(cuda.Outbox(host, m.at.Rank, exchangeBytes))
		if err := m.comm.Barrier(); err != nil {
			return nil, nil, err
		}
		c.host = host
	}
	e, mine := m.device.end(c)
	if why, err = m.agree(mine); why == nil && err == nil {
		why, err = m.introduce(e)
	}
	if why == nil && err == nil {
		why, err = m.agree(e.check(m.width))
	}
	if why == nil && err == nil {
		return e, nil, nil
	}
	if e != nil {
		err = errors.Join(err, e.Close())
	}
	return nil, why, err
}

// introduce gives every rank the handles of all and connects.
func (m *meeting) introduce(e end) (why, err error) {
	mine, failed := e.handle()
	if why, err := m.agree(failed); why != nil || err != nil {
		return why, err
	}
	handles := make([]cuda.Handle, m.at.Ranks)
	for r := range handles {
		if r == m.at.Rank {
			handles[r] = mine
		}
		words := unsafe.Slice((*float32)(unsafe.Pointer(&handles[r])), len(handles[r])/4)
		if err := m.comm.Broadcast(words, r); err != nil {
			return nil, err
		}
	}
	return m.agree(e.connect(handles))
}

// agree tells all ranks whether this one failed. why is this rank's failure, or
// says which other rank had one.
func (m *meeting) agree(mine error) (why, err error) {
	word := int32(0)
	if mine != nil {
		word = 1
	}
	words, err := m.gather(word)
	if err != nil || mine != nil {
		return mine, err
	}
	for r, w := range words {
		if w[0] != 0 {
			return fmt.Errorf("rank %d cannot use it", r), nil
		}
	}
	return nil, nil
}

// gather is every rank's words, on every rank.
func (m *meeting) gather(mine ...int32) ([][]int32, error) {
	n := len(mine)
	widths := make([]int, m.at.Ranks)
	for r := range widths {
		widths[r] = n
	}
	all, err := m.comm.AllGather(unsafe.Slice((*float32)(unsafe.Pointer(&mine[0])), n), 1, widths)
	if err != nil {
		return nil, err
	}
	words := make([][]int32, m.at.Ranks)
	for r := range words {
		for i := range n {
			words[r] = append(words[r], *(*int32)(unsafe.Pointer(&all[r*n+i])))
		}
	}
	return words, nil
}

// touch writes one byte of every page.
func touch(memory []byte) {
	for at := 0; at < len(memory); at += os.Getpagesize() {
		memory[at] = 0
	}
}
