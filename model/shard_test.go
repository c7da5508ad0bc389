package model

import (
	"testing"

	"pgregory.net/rapid"
)

func TestSplitCoversInOrderAndBalances(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		units, ranks := rapid.IntRange(0, 1<<20).Draw(t, "units"), rapid.IntRange(1, MaxRanks).Draw(t, "ranks")
		at := 0
		for r := range ranks {
			lo, hi := Split(units, ranks, r)
			if lo != at || hi < lo || hi-lo < units/ranks || hi-lo > units/ranks+1 {
				t.Fatalf("rank %d of %d has [%d, %d) of %d, after %d", r, ranks, lo, hi, units, at)
			}
			at = hi
		}
		if at != units {
			t.Fatalf("%d of %d units are given out", at, units)
		}
	})
}

func TestSplitByCutsAtGranules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, ranks := rapid.IntRange(1, 4000).Draw(t, "n"), rapid.IntRange(1, MaxRanks).Draw(t, "ranks")
		granule := rapid.SampledFrom([]int{1, 16, 32, 128}).Draw(t, "granule")
		at := 0
		for r := range ranks {
			lo, hi := Shard{r, ranks}.SplitBy(n, granule)
			if lo != at || hi < lo || lo != n && lo%granule != 0 {
				t.Fatalf("rank %d has [%d, %d) of %d by %d, after %d", r, lo, hi, n, granule, at)
			}
			at = hi
		}
		if at != n {
			t.Fatalf("%d of %d values are given out", at, n)
		}
	})
}

func TestPublishedWidthsAreCutAtTiles(t *testing.T) {
	for _, n := range []int{5632, 14336, 18432, 28672, 128256, 129280, 151936, 163840} {
		for ranks := 1; ranks <= MaxRanks; ranks++ {
			for r := range ranks {
				if lo, hi := (Shard{r, ranks}).SplitWidth(n, 1); lo%Tile != 0 || hi%Tile != 0 {
					t.Errorf("rank %d of %d has [%d, %d) of %d", r, ranks, lo, hi, n)
				}
			}
		}
	}
}

func TestEveryQueryHeadFindsItsKeyHead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kv := rapid.IntRange(1, 16).Draw(t, "kv")
		query := kv * rapid.IntRange(1, 12).Draw(t, "group")
		ranks := rapid.IntRange(1, MaxRanks).Draw(t, "ranks")
		for r := range ranks {
			h := Shard{r, ranks}.SplitHeads(query, kv)
			for i, local := range h.KVOf {
				head := h.KVLo + int(local)
				if head != (h.QueryLo+i)/(query/kv) || head >= h.KVHi {
					t.Fatalf("query head %d reads key head %d of [%d, %d)", h.QueryLo+i, head, h.KVLo, h.KVHi)
				}
			}
			if len(h.KVOf) > 0 && h.KVHi-h.KVLo > (h.QueryHi-h.QueryLo+query/kv-1)/(query/kv)+1 {
				t.Fatalf("rank %d holds key heads [%d, %d) for %d query heads", r, h.KVLo, h.KVHi, len(h.KVOf))
			}
		}
	})
}

func TestReplicatedKeyHeadsAreTheUsualOnes(t *testing.T) {
	for r := range 8 {
		if h := (Shard{r, 8}).SplitHeads(32, 2); h.KVLo != r/4 || h.KVHi != r/4+1 {
			t.Errorf("rank %d of 8 holds key heads [%d, %d) of 2", r, h.KVLo, h.KVHi)
		}
	}
}

func TestShardsThatNoGroupHas(t *testing.T) {
	for _, s := range []Shard{{0, 0}, {0, 9}, {-1, 2}, {2, 2}} {
		if s.Validate() == nil {
			t.Errorf("%+v is accepted", s)
		}
	}
}
