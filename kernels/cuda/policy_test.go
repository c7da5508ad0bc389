package cuda

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/octet-run/octet/kernels"
)

// TestEveryPolicyChoiceIsALaunchThatTheKernelsAdmit goes through group sizes, paths,
// devices and payloads.
func TestEveryPolicyChoiceIsALaunchThatTheKernelsAdmit(t *testing.T) {
	for ranks := 2; ranks <= maxRanks; ranks++ {
		for _, p := range []Policy{
			{Ranks: ranks},
			{Ranks: ranks, Clusters: true},
			{Ranks: ranks, Host: true},
			{Ranks: ranks, Clusters: true, Blocks: 66},
			{Ranks: ranks, Blocks: 8, Host: true, Clusters: true},
		} {
			for _, cols := range []int{8, 96, 512, 896, 4096, 5120, 7168, 8192, 16384, 18432} {
				for _, rows := range []int{1, 2, 7, 8, 16, 17, 64, 100, 500} {
					checkChoice(t, p, p.Plain(rows*cols), false, cols)
					checkChoice(t, p, p.Fused(rows, cols), true, cols)
				}
			}
		}
	}
}

func checkChoice(t *testing.T, p Policy, c Choice, fused bool, cols int) {
	t.Helper()
	g := c.Grid
	if g.Blocks < 1 || g.Blocks > p.most() || g.Threads < 32 || g.Threads > maxThreads || g.Threads%32 != 0 || c.Form > TwoShot {
		t.Errorf("%+v chooses %+v", p, c)
	}
	if fused {
		if _, err := fusedKernel(c.Form, g, cols); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

func TestOnlyRowsThatKernelsTakeAreAdmitted(t *testing.T) {
	for cols, admitted := range map[int]bool{8: true, 7168: true, 18432: true, 18440: false, 7164: false} {
		if err := AdmitsRows(cols); (err == nil) != admitted {
			t.Errorf("rows of %d: %v", cols, err)
		}
	}
}

// randomBatch is some sequences, chunks and trees.
func randomBatch(rng *rand.Rand) *kernels.Batch {
	b := &kernels.Batch{}
	for range 1 + rng.IntN(4) {
		s := kernels.Sequence{First: len(b.Tokens), Rows: 1 + rng.IntN(12), Committed: rng.IntN(3000)}
		for range (s.Committed + 15) / 16 {
			s.Blocks = append(s.Blocks, int32(rng.IntN(1000)))
		}
		tree := rng.IntN(2) == 0
		if tree {
			for range rng.IntN(4) {
				s.Scratch = append(s.Scratch, int32(rng.IntN(10000)))
			}
		}
		for r := range s.Rows {
			b.Tokens, b.Positions = append(b.Tokens, int32(r)), append(b.Positions, int32(s.Committed+r))
			b.Slots = append(b.Slots, int32(rng.IntN(10000)))
			if tree {
				mine := uint64(1) << (len(s.Scratch) + r)
				s.Ancestors = append(s.Ancestors, mine|rng.Uint64()&(mine-1))
			}
		}
		b.Sequences = append(b.Sequences, s)
	}
	return b
}

func TestADescriptionFitsItsShape(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		b := randomBatch(rng)
		shape := ShapeOf(b)
		var d description
		d.describe(b)
		rows := len(b.Tokens)
		switch {
		case shape.Rows != rows, len(d.words) > shape.Words, (d.longest+attentionSpan-1)/attentionSpan > shape.Spans:
			t.Fatalf("%d rows, %d words and %d positions have shape %+v", rows, len(d.words), d.longest, shape)
		case d.positions != rows, d.slots != 2*rows, d.views != (3*rows+3)&^3, d.tiles != d.views+viewWords*rows, d.at != d.tiles+2*tileWords*rows:
			t.Fatalf("the parts of %d rows begin at %d, %d, %d, %d", rows, d.positions, d.slots, d.views, d.at)
		}
	}
}

// TestARowSeesWhatItsSequenceSays reads a description as the kernel does.
func TestARowSeesWhatItsSequenceSays(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var d description // used again, as by passes
	for range 500 {
		b := randomBatch(rng)
		d.describe(b)
		for _, s := range b.Sequences {
			for r := range s.Rows {
				view := d.words[d.views+viewWords*(s.First+r):][:viewWords]
				var want []int32
				for j := range 64 {
					switch n := len(s.Scratch); {
					case s.Ancestors == nil && j <= r:
						want = append(want, b.Slots[s.First+j])
					case s.Ancestors == nil || s.Ancestors[r]>>j&1 == 0:
					case j < n:
						want = append(want, s.Scratch[j])
					default:
						want = append(want, b.Slots[s.First+j-n])
					}
				}
				lists := d.words[d.at:]
				if got := lists[view[2]:][:view[3]]; !slices.Equal(got, want) {
					t.Fatalf("row %d sees slots %v beyond its pages, want %v", r, got, want)
				}
				if got := lists[view[1]:][:len(s.Blocks)]; int(view[0]) != s.Committed || !slices.Equal(got, s.Blocks) {
					t.Fatalf("row %d sees pages %v", r, got)
				}
			}
		}
	}
}

// TestTilesCoverWhatRowsSee reads the tiles of a description as the kernel does: every
// row has each of its spans once, beside rows that find the same slots there.
func TestTilesCoverWhatRowsSee(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var d description
	for range 500 {
		b := randomBatch(rng)
		d.describe(b)
		lists := d.words[d.at:]
		view := func(row int) []int32 { return d.words[d.views+viewWords*row:][:viewWords] }
		slots := func(row, span int) (at []int32) {
			v := view(row)
			for p := span * spanPositions; p < min((span+1)*spanPositions, int(v[0]+v[3])); p++ {
				if p < int(v[0]) {
					at = append(at, lists[int(v[1])+p/16]*16+int32(p%16))
				} else {
					at = append(at, lists[int(v[2])+p-int(v[0])])
				}
			}
			return at
		}
		seen := map[[2]int]int{}
		for at := d.tiles; at < d.at && d.words[at+1] > 0; at += tileWords {
			row, rows, first, spans := int(d.words[at]), int(d.words[at+1]), int(d.words[at+2]), int(d.words[at+3])
			for span := first; span < first+spans; span++ {
				most := slots(row+rows-1, span)
				for r := row; r < row+rows; r++ {
					mine := slots(r, span)
					if len(mine) > 0 {
						seen[[2]int{r, span}]++
					}
					if len(mine) > len(most) || !slices.Equal(mine, most[:len(mine)]) {
						t.Fatalf("rows %d and %d are in one tile and read slots %v and %v of span %d", r, row+rows-1, mine, most, span)
					}
				}
			}
		}
		want := 0
		for row := range b.Tokens {
			want += spansOf(int(view(row)[0] + view(row)[3]))
		}
		if len(seen) != want {
			t.Fatalf("%d spans of rows are in tiles, rows see %d", len(seen), want)
		}
		for at, times := range seen {
			if times != 1 {
				t.Fatalf("span %d of row %d is in %d tiles", at[1], at[0], times)
			}
		}
	}
}

func TestShapesGrowInFewSteps(t *testing.T) {
	last, steps := 0, 0
	for n := range 5000 {
		got := coarse(n)
		if got < n || got < last || 4*got > 5*max(n, 4) {
			t.Fatalf("%d is rounded up to %d", n, got)
		}
		if got != last {
			last, steps = got, steps+1
		}
	}
	if steps > 60 {
		t.Errorf("%d shapes up to 5000", steps)
	}
}

func TestScratchGrowsAndGivesTheSameAddressesAgain(t *testing.T) {
	next := uintptr(1 << 30)
	s := scratch{alloc: func(bytes int) (uintptr, error) {
		next += 1 << 40
		return next, nil
	}}
	sizes := []int{100, regionBytes - 512, 4096, 3 * regionBytes, 8}
	pass := func(grow bool) (addresses []uintptr) {
		s.reset()
		for _, size := range sizes {
			p, ok, err := s.take(size, grow)
			if !ok || err != nil {
				t.Fatalf("%d bytes: %v, %v", size, ok, err)
			}
			addresses = append(addresses, p)
		}
		return addresses
	}
	first := pass(true)
	mark := s.mark()
	if second := pass(false); !slices.Equal(first, second) {
		t.Errorf("the second pass has %#x, the first had %#x", second, first)
	}
	after, _, _ := s.take(64, false)
	s.reset()
	s.restore(mark)
	if again, _, _ := s.take(64, false); again != after {
		t.Errorf("after a restore the next is at %#x, not %#x", again, after)
	}
	if _, ok, _ := s.take(9*regionBytes, false); ok {
		t.Error("memory that was not there was handed out")
	}
	s.most = s.size + 100
	if _, ok, _ := s.take(2*regionBytes, true); ok {
		t.Error("the bound does not hold")
	}
}

func TestAddressesHaveTheFormOfSysfs(t *testing.T) {
	for in, want := range map[string]string{"00000000:41:00.0": "0000:41:00.0", "0000:AF:00.0": "0000:af:00.0"} {
		if got := pciAddress(in); got != want {
			t.Errorf("%q becomes %q", in, got)
		}
	}
}
