package rank

import (
	"fmt"

	"github.com/octet-run/octet/actors/round"
)

// settle brings the slots to where the round begins: sequences that left are
// released, new ones opened, and of every last tree what was kept is committed.
func (e *Engine) settle(r *round.Round) error {
	e.moves.from, e.moves.to = e.moves.from[:0], e.moves.to[:0]
	for i := range r.Entries {
		entry := &r.Entries[i]
		if int(entry.Slot) >= len(e.slots) {
			return fmt.Errorf("round %d: slot %d of %d", r.Seq, entry.Slot, len(e.slots))
		}
		if err := e.settleEntry(entry); err != nil {
			return fmt.Errorf("round %d, slot %d: %w", r.Seq, entry.Slot, err)
		}
	}
	if len(e.moves.from) > 0 {
		e.target.MoveKV(e.moves.from, e.moves.to)
	}
	return nil
}

func (e *Engine) settleEntry(entry *round.Entry) error {
	s := e.slots[entry.Slot]
	if entry.Kind == round.Release {
		if s != nil {
			e.release(s)
			e.slots[entry.Slot] = nil
		}
		return nil
	}
	if entry.Sampling != nil {
		if s != nil {
			return fmt.Errorf("request %d takes the slot of request %d, which was not released", entry.Request, s.request)
		}
		opened, err := e.begin(entry)
		if err != nil {
			return err
		}
		s = opened
		e.slots[entry.Slot] = s
	}
	if s == nil || s.request != entry.Request {
		return fmt.Errorf("request %d was never introduced", entry.Request)
	}
	if err := e.commitTree(s, entry); err != nil {
		return err
	}
	if got := s.cache.Committed(); got != int(entry.Committed) {
		return fmt.Errorf("request %d has %d positions in the cache, the coordinator counts %d", entry.Request, got, entry.Committed)
	}
	return nil
}

// commitTree keeps the accepted path of the slot's last tree. The drafter will be
// extended with the features of the same rows.
func (e *Engine) commitTree(s *slot, entry *round.Entry) error {
	if s.tree == nil {
		if len(entry.Accepted) > 0 {
			return fmt.Errorf("a path of %d nodes is accepted and there is no tree", len(entry.Accepted))
		}
		return nil
	}
	path := entry.Accepted
	if len(path) == 0 || path[0] != 0 {
		return fmt.Errorf("the accepted path does not begin at the root of the last tree")
	}
	var kept []int32
	for i, node := range path {
		if int(node) >= s.tree.Len() || i > 0 && s.tree.Parents[node] != int32(path[i-1]) {
			return fmt.Errorf("the accepted nodes %v are no path of the last tree", path)
		}
		kept = append(kept, s.tree.Tokens[node])
	}
	e.moves.from, e.moves.to = s.cache.CommitPath(path, e.moves.from, e.moves.to)
	s.observe(kept)
	if s.draft != nil {
		e.drafting.keep(s.draft, path, kept)
	}
	s.tree = nil
	return nil
}
