package boxsim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/octet-run/octet/collectives"
	"github.com/octet-run/octet/collectives/topology"
)

// Prediction is which of our exact algorithms is the fastest at which size on a box
// that is not here to be measured. All who speak of such a box speak of this one.
type Prediction struct {
	Shape     collectives.Shape `json:"-"`
	WireBytes int               `json:"wire_bytes"` // of a value on its way
	Choices   []Predicted       `json:"choices"`    // plain ones by rising size, then fused ones
}

// Predicted is the fastest algorithm for a range of sizes.
type Predicted struct {
	MaxBytes int  `json:"max_bytes"` // of a rank's payload on its way; 0: of any size
	Fused    bool `json:"fused"`
	Simulated
	Others []Simulated `json:"others"` // at the same size, by rising time
}

// AtBytes is the size at which the times were taken.
func (p Predicted) AtBytes() int { return cmp.Or(p.MaxBytes, mostBytes) }

// Simulated is one algorithm's time at the upper end of a range.
type Simulated struct {
	Algorithm string  `json:"algorithm"`
	Path      string  `json:"path"`
	US        float64 `json:"us"`
}

// All powers of two in a range are compared. Between two that have different choices,
// the size up to which the smaller one's holds is looked for in steps.
const (
	leastBytes = 1 << 10
	mostBytes  = 1 << 20
	stepBytes  = 64
)

// Predict simulates all that can run among the ranks of a box.
func Predict(box *topology.Box, ranks int) (Prediction, error) {
	c := Config{Box: box, Ranks: ranks, Stack: Stacks()[0]}
	if err := c.validate(); err != nil {
		return Prediction{}, err
	}
	p := Prediction{Shape: c.shape(), WireBytes: c.wireBytes()}
	for _, fused := range []bool{false, true} {
		choices, err := predictRanges(c, fused)
		if err != nil {
			return Prediction{}, err
		}
		p.Choices = append(p.Choices, choices...)
	}
	return p, nil
}

func predictRanges(c Config, fused bool) ([]Predicted, error) {
	c.Fused = fused
	last, err := c.compete(leastBytes)
	if err != nil {
		return nil, err
	}
	var out []Predicted
	for low := leastBytes; low < mostBytes; low *= 2 {
		next, err := c.compete(2 * low)
		if err != nil {
			return nil, err
		}
		if !next.same(last) {
			end, err := c.lastOf(last, low, 2*low)
			if err != nil {
				return nil, err
			}
			out = append(out, end)
		}
		last = next
	}
	last.MaxBytes = 0
	return append(out, last), nil
}

// lastOf is the choice that holds at low and not at high, at the largest size at
// which it does.
func (c Config) lastOf(at Predicted, low, high int) (Predicted, error) {
	for high-low > stepBytes {
		middle := (low + (high-low)/2) / stepBytes * stepBytes
		if middle <= low {
			break
		}
		tried, err := c.compete(middle)
		if err != nil {
			return Predicted{}, err
		}
		if tried.same(at) {
			low, at = middle, tried
		} else {
			high = middle
		}
	}
	return at, nil
}

func (p Predicted) same(other Predicted) bool {
	return p.Algorithm == other.Algorithm && p.Path == other.Path
}

// compete simulates every exact algorithm at one size.
func (c Config) compete(bytes int) (Predicted, error) {
	var all []Simulated
	for _, stack := range ours(c.Box) {
		c.Stack, c.Bytes = stack, bytes
		for _, a := range collectives.Algorithms() {
			if !a.Exact || c.Admits(a.Name) != nil {
				continue
			}
			r, err := c.run(a.Name)
			if err != nil {
				return Predicted{}, err
			}
			all = append(all, Simulated{Algorithm: a.Name, Path: c.path(), US: r.US})
		}
	}
	if len(all) == 0 {
		return Predicted{}, fmt.Errorf("no exact algorithm reduces %d bytes among %d ranks of box %s", bytes, c.ranks(), c.Box.Name)
	}
	slices.SortStableFunc(all, func(a, b Simulated) int { return cmp.Compare(a.US, b.US) })
	return Predicted{MaxBytes: bytes, Fused: c.Fused, Simulated: all[0], Others: all[1:]}, nil
}

// Choose is the prediction for a payload of so many bytes on its way.
func (p Prediction) Choose(bytes int, fused bool) Predicted {
	i := slices.IndexFunc(p.Choices, func(c Predicted) bool {
		return c.Fused == fused && (c.MaxBytes == 0 || bytes <= c.MaxBytes)
	})
	return p.Choices[i]
}

// Plan is the prediction as a plan of float32 payloads, without paths.
func (p Prediction) Plan() collectives.Plan {
	plan := collectives.Plan{Version: collectives.PlanVersion, Shape: p.Shape}
	for _, c := range p.Choices {
		plan.Choices = append(plan.Choices, collectives.Choice{
			MaxBytes: c.MaxBytes / p.WireBytes * 4, Fused: c.Fused, Algorithm: c.Algorithm, Why: "fastest simulated",
		})
	}
	return plan
}
