package rank

import (
	"fmt"

	"github.com/octet-run/octet/collectives"
	"github.com/octet-run/octet/collectives/transport"
	"github.com/octet-run/octet/faults"
	"github.com/octet-run/octet/model/kvcache"
)

// connect makes the communicator of an epoch.
func (e *Engine) connect(at Place) error {
	link, err := at.Slabs.Attach(at.Rank, transport.Polling{
		Dedicated: e.config.Dedicated, Timeout: e.config.CollectiveTimeout, Misses: at.WaitsFor,
	})
	if err != nil {
		return err
	}
	comm, err := collectives.New(transport.WithFaults(link, at.Faults), collectives.Config{Plan: e.config.Plan, Dedicated: e.config.Dedicated})
	if err != nil {
		return err
	}
	e.faults, e.unproven = at.Faults, true
	return e.reducer.join(comm, at)
}

// prove has the ranks try every path between them, once an epoch and before a
// reduction rests on one: where they load together, when all have begun to; in other
// epochs, to which they come one by one, in the first round.
func (e *Engine) prove() error {
	if !e.unproven {
		return nil
	}
	e.unproven = false
	return e.reducer.prove()
}

// Leave drops all that belongs to an epoch: its communicator, every sequence, target
// and drafter alike, and what the caches hold. Weights and memory stay. It may
// follow a step or a Rejoin that failed. An error says that the engine is of no more
// use.
func (e *Engine) Leave() error {
	if err := e.backend.Sync(); err != nil {
		return fmt.Errorf("rank %d: leave an epoch: %w", e.rank, err)
	}
	e.faults = nil
	if e.graphs != nil {
		if err := e.graphs.drop(); err != nil {
			return fmt.Errorf("rank %d: leave an epoch: %w", e.rank, err)
		}
	}
	if err := e.reducer.part(); err != nil {
		return fmt.Errorf("rank %d: leave an epoch: %w", e.rank, err)
	}
	clear(e.slots)
	e.cache = kvcache.New(e.config.Blocks)
	if e.drafting != nil {
		e.drafting.reset(&e.config)
	}
	return nil
}

// Rejoin makes the engine, after Leave, as it was when it had loaded.
func (e *Engine) Rejoin(at Place) error {
	if err := faults.Strike(at.Faults.Point(faults.RankLoad, faults.Where{})); err != nil {
		return err
	}
	return e.connect(at)
}
