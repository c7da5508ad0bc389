package boxsim

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestFairShares(t *testing.T) {
	a, b, c := &link{10}, &link{8}, &link{3}
	on := func(cap float64, links ...*link) *flow { return &flow{cap: cap, links: links} }
	for _, tc := range []struct {
		name  string
		flows []*flow
		want  []float64
	}{
		{"alone", []*flow{on(100, a)}, []float64{10}},
		{"cap below the link", []*flow{on(4, a)}, []float64{4}},
		{"two on one link", []*flow{on(100, a), on(100, a)}, []float64{5, 5}},
		{"a capped one leaves the rest", []*flow{on(2, a), on(100, a)}, []float64{2, 8}},
		{"two bottlenecks", []*flow{on(100, a), on(100, a, c), on(100, c)}, []float64{8.5, 1.5, 1.5}},
		{"three links", []*flow{on(100, a, b), on(100, a), on(100, b, c)}, []float64{5, 5, 3}},
		{"nothing shared", []*flow{on(100, a), on(100, b)}, []float64{10, 8}},
	} {
		share(tc.flows, nil)
		for i, f := range tc.flows {
			if math.Abs(f.rate-tc.want[i]) > 1e-9 {
				t.Errorf("%s: flow %d gets %g, want %g", tc.name, i, f.rate, tc.want[i])
			}
		}
	}
}

func TestSharesFillLinksAndNeverMore(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		links := make([]*link, 1+random.IntN(5))
		for i := range links {
			links[i] = &link{1 + 50*random.Float64()}
		}
		flows := make([]*flow, 1+random.IntN(12))
		for i := range flows {
			flows[i] = &flow{cap: 1 + 60*random.Float64()}
			for _, l := range links {
				if random.IntN(2) == 0 {
					flows[i].links = append(flows[i].links, l)
				}
			}
		}
		share(flows, nil)
		used := map[*link]float64{}
		for _, f := range flows {
			for _, l := range f.links {
				used[l] += f.rate
			}
		}
		for _, f := range flows {
			stopped := f.rate >= f.cap*(1-1e-9)
			for _, l := range f.links {
				if used[l] > l.gbps*(1+1e-6) {
					t.Fatalf("a link of %g carries %g", l.gbps, used[l])
				}
				stopped = stopped || used[l] >= l.gbps*(1-1e-6)
			}
			if !stopped {
				t.Fatalf("a flow of rate %g and cap %g could be faster", f.rate, f.cap)
			}
		}
	}
}
