package rank

import (
	"fmt"

	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/checkpoint"
	"github.com/octet-run/octet/model/eagle3"
	"github.com/octet-run/octet/model/kvcache"
	"github.com/octet-run/octet/speculation"
)

// drafting is the EAGLE-3 drafter on a rank that runs one.
//
// Between rounds each drafting sequence has features of the target that the
// drafter has not seen. They wait in the sequence's rows of the feature store,
// with the tokens that follow them, and go through the drafter in one pass when a
// tree is asked for, or when they become many: a sequence that does not draft for
// a while costs next to nothing and can draft again at any time.
type drafting struct {
	drafter *eagle3.Drafter
	backend kernels.Backend
	cache   *kvcache.Cache
	// store is [slots*storeRows, features]: per sequence waitingRows rows that wait,
	// then the rows of its last tree.
	store kernels.Tensor
	free  []int // places in the store that no sequence has
	batch kernels.Batch
}

const (
	waitingRows = 2 * speculation.MaxNodes
	storeRows   = waitingRows + speculation.MaxNodes
	// flushAt is how many waiting rows are run without being asked for: one tree
	// more always fits.
	flushAt = waitingRows - speculation.MaxNodes
)

// draftState is one sequence's part of the drafter.
type draftState struct {
	cache *kvcache.Sequence
	place int // in the store
	// waiting is the tokens that follow the rows that wait: row i of the sequence's
	// store is paired with waiting[i]. The last row's token may be still to come.
	waiting []int32
	rows    int
}

func newDrafting(src eagle3.Source, c eagle3.Config, target *model.Config, cfg *Config, b kernels.Backend, l checkpoint.LoadConfig) (*drafting, error) {
	rows := max(cfg.MaxRows, cfg.Slots*waitingRows)
	drafter, err := eagle3.New(src, c, target, eagle3.Options{Blocks: cfg.Blocks, MaxRows: rows, Positions: cfg.Context}, b, l)
	if err != nil {
		return nil, err
	}
	d := &drafting{drafter: drafter, backend: b}
	d.reset(cfg)
	d.store, err = b.Alloc(b.Activation(), cfg.Slots*storeRows, len(c.Captures)*target.Hidden)
	return d, err
}

// reset forgets all sequences.
func (d *drafting) reset(cfg *Config) {
	d.cache, d.free = kvcache.New(cfg.Blocks), d.free[:0]
	for i := range cfg.Slots {
		d.free = append(d.free, cfg.Slots-1-i)
	}
}

func (d *drafting) open() *draftState {
	place := d.free[len(d.free)-1]
	d.free = d.free[:len(d.free)-1]
	return &draftState{cache: d.cache.NewSequence(), place: place}
}

func (d *drafting) close(s *draftState) {
	s.cache.Release()
	d.free = append(d.free, s.place)
}

// row is a row of a sequence's store.
func (d *drafting) row(s *draftState, i int) int { return s.place*storeRows + i }

// keep makes the rows of the accepted path wait. kept are the path's tokens: each
// but the first follows the row before it, and the first follows the last row
// that waited, unless a tree was drafted under it and nothing waits.
func (d *drafting) keep(s *draftState, path []uint8, kept []int32) {
	if s.rows == 0 {
		kept = kept[1:]
	}
	s.waiting = append(s.waiting, kept...)
	for _, node := range path {
		d.copyRow(d.row(s, s.rows), d.store, d.row(s, waitingRows+int(node)))
		s.rows++
	}
}

// verified saves the features of a tree's rows, which begin at row first of the pass.
func (d *drafting) verified(s *draftState, features kernels.Tensor, first, nodes int) {
	at := d.row(s, waitingRows)
	d.backend.Copy(d.store.RowRange(at, at+nodes), features.RowRange(first, first+nodes))
}

func (d *drafting) copyRow(to int, from kernels.Tensor, row int) {
	d.backend.Copy(d.store.RowRange(to, to+1), from.RowRange(row, row+1))
}

// flush runs all rows that wait in the sequences' stores through the drafter.
// lasts is each sequence's last row of the pass.
func (d *drafting) flush(states []*draftState) (lasts []int32, err error) {
	d.resetBatch()
	var rows []int32
	for _, s := range states {
		if len(s.waiting) != s.rows {
			return nil, fmt.Errorf("drafter: %d rows wait with %d tokens", s.rows, len(s.waiting))
		}
		if err := s.cache.Append(&d.batch, s.waiting); err != nil {
			return nil, fmt.Errorf("drafter: %w", err)
		}
		for i := range s.rows {
			rows = append(rows, int32(d.row(s, i)))
		}
		lasts = append(lasts, int32(len(rows)-1))
	}
	d.drafter.Extend(&d.batch, d.store, rows)
	for _, s := range states {
		s.cache.Commit(s.rows)
		s.rows, s.waiting = 0, s.waiting[:0]
	}
	return lasts, nil
}

// chunk is one sequence's rows of a prefill pass.
type chunk struct {
	state  *draftState
	first  int     // row of the pass
	tokens []int32 // of its rows
}

// prefilled runs the chunks of a pass through the drafter. Each row is paired with
// the token after it; a chunk's last row waits for the token that follows.
func (d *drafting) prefilled(chunks []chunk, features kernels.Tensor) error {
	var continued []*draftState
	for _, c := range chunks {
		if c.state.rows > 0 {
			c.state.waiting = append(c.state.waiting, c.tokens[0])
			continued = append(continued, c.state)
		}
	}
	if len(continued) > 0 {
		if _, err := d.flush(continued); err != nil {
			return err
		}
	}
	d.resetBatch()
	var rows []int32
	for _, c := range chunks {
		if len(c.tokens) > 1 {
			if err := c.state.cache.Append(&d.batch, c.tokens[1:]); err != nil {
				return fmt.Errorf("drafter: %w", err)
			}
		}
		for i := range len(c.tokens) - 1 {
			rows = append(rows, int32(c.first+i))
		}
		d.copyRow(d.row(c.state, 0), features, c.first+len(c.tokens)-1)
		c.state.rows = 1
	}
	if len(rows) > 0 {
		d.drafter.Extend(&d.batch, features, rows)
	}
	for _, c := range chunks {
		c.state.cache.Commit(len(c.tokens) - 1)
	}
	return nil
}

func (d *drafting) resetBatch() {
	b := &d.batch
	b.Tokens, b.Positions, b.Slots, b.Sequences = b.Tokens[:0], b.Positions[:0], b.Slots[:0], b.Sequences[:0]
}
