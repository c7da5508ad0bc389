package speculation

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestNGramFollowsTheLastOccurrence(t *testing.T) {
	for _, c := range []struct {
		name     string
		min      int
		observed []int32
		root     int32
		steps    int
		want     []int32
	}{
		{"nothing before", 1, nil, 5, 3, nil},
		{"never seen", 1, []int32{1, 2, 3}, 5, 3, nil},
		{"one token matches", 1, []int32{1, 2, 3, 9}, 1, 3, []int32{2, 3, 9}},
		{"one token is too short", 2, []int32{1, 2, 3, 9}, 1, 3, nil},
		{"later occurrence wins", 1, []int32{1, 2, 1, 3, 9}, 1, 1, []int32{3}},
		{"longer suffix wins", 1, []int32{7, 1, 2, 8, 1, 3, 7}, 1, 2, []int32{2, 8}},
		{"runs into itself", 1, []int32{4, 5}, 4, 5, []int32{5, 4, 5, 4, 5}},
		{"repeats", 1, []int32{6}, 6, 3, []int32{6, 6, 6}},
	} {
		g := NewNGram(c.min)
		g.Observe(c.observed...)
		for range 2 { // drafting leaves nothing behind
			if got := g.Draft(c.root, c.steps); !slices.Equal(got, c.want) {
				t.Errorf("%s: drafted %v, want %v", c.name, got, c.want)
			}
		}
	}
}

func TestNGramEqualsASlowSearch(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 7))
	for range 500 {
		g := NewNGram(1 + rng.IntN(3))
		tokens := make([]int32, rng.IntN(60))
		for i := range tokens {
			tokens[i] = int32(rng.IntN(4))
		}
		g.Observe(tokens...)
		root, steps := int32(rng.IntN(4)), 1+rng.IntN(6)
		all := append(slices.Clone(tokens), root)
		var want []int32
		for n := min(maxMatch, len(all)); n >= g.minMatch && want == nil; n-- {
			for at := len(all) - 1; at >= n; at-- {
				if slices.Equal(all[at-n:at], all[len(all)-n:]) {
					for i := range steps {
						all = append(all, all[at+i])
					}
					want = all[len(all)-steps:]
					break
				}
			}
		}
		if got := g.Draft(root, steps); !slices.Equal(got, want) {
			t.Fatalf("after %v and %d drafted %v, want %v", tokens, root, got, want)
		}
	}
}
