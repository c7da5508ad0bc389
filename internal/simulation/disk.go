package simulation

import (
	"errors"
	"slices"
	"sync"

	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/coordinator"
)

// disk keeps the token log across coordinators. The log itself is the real one in
// memory; mount gives one coordinator's view, which ends with its process.
type disk struct {
	log  *coordinator.MemoryLog
	open []string // requests that have not ended; guarded by the mount's owner
}

// mount is the log for a new process.
func (d *disk) mount(owner *incarnation) *mount {
	m := &mount{disk: d, owner: owner, unfinished: d.open}
	d.open = nil
	return m
}

// errDisk is what a write returns that a fault lets fail.
var errDisk = errors.New("no space left on device")

// mount is the log as one coordinator sees it. Its methods are called from outside.
type mount struct {
	*disk
	owner *incarnation
	// unfinished are the requests that the process before has left.
	unfinished []string

	mu   sync.Mutex
	fail bool
	// crash is when the process dies in the next Append.
	crash crashPoint
}

type crashPoint uint8

const (
	noCrash crashPoint = iota
	beforeWrite
	afterWrite
)

// Begin implements coordinator.TokenLog.
func (m *mount) Begin(r *coordinator.Request) error {
	if m.owner.dead.Load() {
		return nil
	}
	m.close(r.ID)
	m.open = append(m.open, r.ID)
	return m.log.Begin(r)
}

func (m *mount) close(id string) {
	m.open = slices.DeleteFunc(m.open, func(open string) bool { return open == id })
}

// Append implements coordinator.TokenLog.
func (m *mount) Append(id string, tokens []int32, logprobs []round.TokenLogprobs) error {
	m.mu.Lock()
	fail, crash := m.fail, m.crash
	m.fail, m.crash = false, noCrash
	m.mu.Unlock()
	switch {
	case m.owner.dead.Load():
		return nil
	case fail:
		return errDisk
	case crash == beforeWrite:
		m.owner.crash()
		return nil
	}
	err := m.log.Append(id, tokens, logprobs)
	if crash == afterWrite {
		m.owner.crash()
	}
	return err
}

// End implements coordinator.TokenLog.
func (m *mount) End(id string) error {
	if m.owner.dead.Load() {
		return nil
	}
	m.close(id)
	return m.log.End(id)
}

// Unfinished implements coordinator.TokenLog.
func (m *mount) Unfinished() []coordinator.Record {
	var records []coordinator.Record
	for _, id := range m.unfinished {
		if record, found := m.log.Find(id); found {
			records = append(records, record)
		}
	}
	return records
}

// Find implements coordinator.TokenLog.
func (m *mount) Find(id string) (coordinator.Record, bool) { return m.log.Find(id) }

// set arms what happens in the next Append.
func (m *mount) set(fail bool, crash crashPoint) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = m.fail || fail
	m.crash = max(m.crash, crash)
}
