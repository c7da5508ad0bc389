package rank

import (
	"errors"
	"fmt"
	"time"

	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/faults"
	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/checkpoint"
	"github.com/octet-run/octet/model/kvcache"
	"github.com/octet-run/octet/speculation"
)

// Engine is one rank's model, caches and sequences.
type Engine struct {
	config   Config
	rank     int
	backend  kernels.Backend
	reducer  groupReducer
	graphs   *graphs // of verify passes, on a GPU
	faults   *faults.Injector
	unproven bool // the epoch's paths have not been tried yet
	// poisoned is set when a fault has this round's logits be no numbers.
	poisoned bool
	files    []*checkpoint.Files

	target   model.Model
	cache    *kvcache.Cache
	drafting *drafting // ranks that draft

	slots     []*slot
	batch     kernels.Batch
	moves     struct{ from, to []int32 }
	workspace speculation.Workspace
}

// Step runs one round. Rank 0 returns the result, the others nil. After an error
// the engine's sequences are in no defined state: the group is broken.
func (e *Engine) Step(r *round.Round) (*round.Result, error) {
	start := time.Now()
	where := faults.Where{Round: r.Seq}
	if err := e.strike(faults.RankStep, where); err != nil {
		return nil, err
	}
	if err := e.prove(); err != nil {
		return nil, err
	}
	if err := e.settle(r); err != nil {
		return nil, err
	}
	if err := e.strike(faults.RankDraft, where); err != nil {
		return nil, err
	}
	trees, err := e.draft(r)
	if err != nil {
		return nil, e.because(err)
	}
	drafted, exchanged := time.Since(start), e.reducer.soFar()
	fault := e.faults.Point(faults.RankVerify, where)
	if err := faults.Strike(fault); err != nil {
		return nil, err
	}
	e.poisoned = fault != nil && fault.Do == faults.NaN
	pass, err := e.verify(r, trees)
	if err != nil {
		return nil, e.because(err)
	}
	if err := e.strike(faults.RankAccept, where); err != nil {
		return nil, err
	}
	result := &round.Result{Epoch: r.Epoch, Seq: r.Seq}
	if e.rank == 0 {
		result.Outcomes = e.accept(r, trees, pass)
	}
	if err := e.follow(r, pass); err != nil {
		return nil, e.because(err)
	}
	synced := e.backend.Sync()
	spent, err := e.reducer.take()
	if err == nil {
		err = synced
	}
	if err != nil {
		return nil, err
	}
	total := time.Since(start)
	result.Timings = round.Timings{
		Draft: int64(drafted), Transfer: int64(spent.inside - spent.skew), Skew: int64(spent.skew),
		Compute: int64(total - drafted - (spent.inside - exchanged.inside)), Total: int64(total),
	}
	if e.rank != 0 {
		return nil, nil
	}
	return result, nil
}

// because prefers the collective's error: what was computed after it is noise.
func (e *Engine) because(err error) error {
	if _, first := e.reducer.take(); first != nil {
		return first
	}
	return err
}

func (e *Engine) strike(p faults.Point, where faults.Where) error {
	return faults.Strike(e.faults.Point(p, where))
}

// Hash is the rolling hash of the operations that this rank ran.
func (e *Engine) Hash() uint64 { return e.reducer.hash() }

// AtRest reports KV pages that sequences still hold when none should.
func (e *Engine) AtRest() error {
	if held := e.cache.Blocks() - e.cache.Free(); held > 0 || e.cache.Open() > 0 {
		return fmt.Errorf("rank %d: %d sequences hold %d KV pages", e.rank, e.cache.Open(), held)
	}
	return nil
}

// Close frees everything.
func (e *Engine) Close() error {
	var errs []error
	if e.graphs != nil {
		errs = append(errs, e.backend.Sync(), e.graphs.drop())
	}
	if gpu, ok := e.reducer.(*deviceReducer); ok {
		errs = append(errs, gpu.part())
	}
	if e.backend != nil {
		errs = append(errs, e.backend.Close())
	}
	for _, f := range e.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
