package rank

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/octet-run/octet/actors"
	"github.com/octet-run/octet/actors/ledger"
	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/collectives/transport"
	"github.com/octet-run/octet/faults"
	"github.com/octet-run/octet/internal/shm"
)

// Slabs is the name of the segment with the collectives' slabs among those that a
// rank inherits.
const Slabs = "slabs"

// Member is an Engine as a member of a group, over all its epochs.
type Member struct {
	in     *actors.Inherited
	engine *Engine

	mu     sync.Mutex // guards what follows against an Abort while it comes and goes
	slabs  *transport.Group
	device []byte // the memory that ranks on GPUs share, nil on CPUs
}

var _ actors.Successor = (*Member)(nil)

// NewMember is the rank that a process inherited, with nothing loaded yet.
func NewMember(in *actors.Inherited) *Member { return &Member{in: in} }

// Load loads the rank's shard. config is an encoded Config.
func (m *Member) Load(_ context.Context, config []byte, loaded func(done, total uint64)) (actors.Loaded, error) {
	c, err := ParseConfig(config)
	if err != nil {
		return actors.Loaded{}, err
	}
	at, err := m.place()
	if err != nil {
		return actors.Loaded{}, err
	}
	m.engine, err = Load(c, at, func(done, total int64) { loaded(uint64(done), uint64(total)) })
	if err != nil {
		return actors.Loaded{}, err
	}
	return m.loaded(), nil
}

func (m *Member) loaded() actors.Loaded {
	return actors.Loaded{PlanHash: m.engine.config.PlanHash(), Device: m.engine.backend.Name()}
}

// Leave drops what the engine has of the epoch.
func (m *Member) Leave() error {
	m.Abort() // kernels that wait for a rank that is gone end
	m.forget()
	m.in.Arm(nil)
	return m.engine.Leave()
}

// Rejoin brings the engine into the next epoch.
func (m *Member) Rejoin(context.Context) (actors.Loaded, error) {
	at, err := m.place()
	if err != nil {
		return actors.Loaded{}, err
	}
	if err := m.engine.Rejoin(at); err != nil {
		return actors.Loaded{}, err
	}
	return m.loaded(), nil
}

// place is the rank's in the epoch that it inherited.
func (m *Member) place() (Place, error) {
	slabs, err := m.adopt()
	if err != nil {
		return Place{}, err
	}
	injector, err := m.injector()
	if err != nil {
		return Place{}, err
	}
	m.in.Arm(injector)
	seat := m.in.Seat()
	return Place{
		Rank: m.in.Rank, Ranks: m.in.Ranks, Slabs: slabs, Device: m.device, Faults: injector, Later: !m.in.Fresh,
		Record: seat.Op, Beat: seat.Beat, Wait: seat.BeginWait, WaitsFor: seat.WaitsFor, Waited: seat.EndWait,
		Broken: m.broken,
	}, nil
}

// forget lets go of the slabs.
func (m *Member) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.slabs, m.device = nil, nil
}

// injector is nil unless the group was started with a ledger of faults.
func (m *Member) injector() (*faults.Injector, error) {
	segment := m.in.Segment(ledger.Segment)
	if segment == nil {
		return nil, nil
	}
	page, err := ledger.Open(segment)
	if err != nil {
		return nil, err
	}
	return faults.NewSharedInjector(page, m.in.Rank), nil
}

func (m *Member) adopt() (*transport.Group, error) {
	segment := m.in.Segment(Slabs)
	if segment == nil {
		return nil, errors.New("the supervisor handed over no slabs for the collectives")
	}
	slabs, err := transport.Adopt(segment)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.slabs = slabs
	if shared := m.in.Segment(Device); shared != nil {
		m.device = shared.Bytes()
	}
	return slabs, nil
}

// Step runs one round.
func (m *Member) Step(r *round.Round) (*round.Result, uint64, error) {
	result, err := m.engine.Step(r)
	if err != nil {
		return nil, 0, fmt.Errorf("round %d: %w", r.Seq, err)
	}
	return result, m.in.Seat().Hash(), nil
}

// broken tells the group why its collectives ended, if that is known to them alone:
// the supervisor hears of it while the ranks are still at what is left of their pass.
func (m *Member) broken() {
	var why *shm.AbortError
	if seat := m.in.Seat(); !seat.Draining() && errors.As(m.slabs.Err(), &why) {
		seat.Abort(why.Rank, why.Reason)
	}
}

// Abort makes a collective that waits return.
func (m *Member) Abort() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.slabs != nil {
		m.slabs.Abort(-1, shm.Requested)
	}
	if m.device != nil {
		abortDevices(m.device)
	}
}

// Close frees the engine. The memory that the process inherited is not its own.
func (m *Member) Close() error {
	m.forget()
	if m.engine == nil {
		return nil
	}
	return m.engine.Close()
}
