package main

import (
	"fmt"

	"github.com/octet-run/octet/collectives/topology"
)

// spread reports whether the ranks are on several NUMA nodes. On one node no
// memory is nearer than other.
func (r *running) spread() bool {
	for _, b := range r.bindings {
		if b.Node != r.bindings[0].Node {
			return true
		}
	}
	return false
}

// preferMemory gives a rank's process the memory of its node from birth. It runs
// on the thread that forks it.
func (r *running) preferMemory(rank int) error {
	if !r.spread() {
		return nil
	}
	return topology.PreferMemory(r.bindings[rank].Node)
}

// checkBindings holds what /proc says of the rank processes against what they were
// started with.
func (r *running) checkBindings() error {
	for _, k := range r.group.Status().Ranks {
		want := r.bindings[k.Rank]
		if !r.spread() {
			want.Node = -1
		}
		if err := want.Check(k.PID); err != nil {
			return fmt.Errorf("rank %d is not where it was bound: %w", k.Rank, err)
		}
	}
	return nil
}
