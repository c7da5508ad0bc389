package rank

import (
	"github.com/octet-run/octet/collectives"
	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/kvcache"
	"github.com/octet-run/octet/model/layers"
)

// Assemble builds an engine of parts that the caller has: the simulation brings a
// toy model and ranks on one thread. build makes the target over the engine's
// reducer. There is no drafter network. at.Slabs is not used.
func Assemble(c Config, at Place, comm *collectives.Communicator, backend kernels.Backend, build func(layers.Reducer) model.Model) (*Engine, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	e := &Engine{
		config: c, rank: at.Rank, backend: backend, cache: kvcache.New(c.Blocks), slots: make([]*slot, c.Slots),
		reducer: newReducer(),
	}
	if err := e.reducer.join(comm, at); err != nil {
		return nil, err
	}
	e.target = build(e.reducer)
	return e, nil
}
