package collectives

import (
	"fmt"
	"strings"
	"time"
)

// Tune says what is tuned.
type Tune struct {
	Policy     Policy
	Sizes      []int // payload bytes, rising; none means 1 KiB to 1 MiB by fours
	Width      int   // row width of the fused form; 0 means one row
	Iterations int   // timed operations each; 0 means 60
}

// Measurement is what one algorithm took at one size: the slowest rank's median, in
// the best of several rounds.
type Measurement struct {
	Algorithm string        `json:"algorithm"`
	Bytes     int           `json:"bytes"`
	Fused     bool          `json:"fused"`
	Median    time.Duration `json:"median_ns"`
}

// Tune verifies, then times, every admitted algorithm at every size, and makes the
// plan of the fastest. All ranks call it together and get equal results. The
// communicator keeps its own plan: make a new one with the plan that comes back.
func (c *Communicator) Tune(t Tune) (Plan, []Measurement, error) {
	if len(t.Sizes) == 0 {
		t.Sizes = []int{1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20}
	}
	if t.Iterations == 0 {
		t.Iterations = 60
	}
	own := c.plan
	defer c.use(own)
	var all []Measurement
	for _, bytes := range t.Sizes {
		for _, fused := range []bool{false, true} {
			p := t.payload(bytes, fused)
			if p.Elements() > c.link.Capacity() {
				continue
			}
			found, err := c.tunePayload(t, p)
			if err != nil {
				return Plan{}, nil, err
			}
			if len(found) == 0 {
				continue
			}
			all = append(all, found...)
			t.Policy.Tuned = append(t.Policy.Tuned, fastest(found, bytes))
		}
	}
	plan, err := t.Policy.Plan(t.Sizes)
	return plan, all, err
}

func (t Tune) payload(bytes int, fused bool) Payload {
	width := bytes / 4
	if t.Width > 0 {
		width = min(t.Width, width)
	}
	// A verify pass has a residual in common where ranks share one memory.
	return Payload{Rows: bytes / 4 / width, Width: width, Fused: fused, CommonResidual: fused && t.Policy.Shape.Coherent}
}

// tuneRounds is how often the candidates take turns: a disturbance that hits one of
// them in one round does not decide.
const tuneRounds = 3

// tunePayload is the best of each candidate's medians.
func (c *Communicator) tunePayload(t Tune, p Payload) ([]Measurement, error) {
	var found []Measurement
	for _, a := range Algorithms() {
		if t.Policy.admits(a, p) == nil {
			found = append(found, Measurement{Algorithm: a.Name, Bytes: p.Bytes(), Fused: p.Fused})
		}
	}
	for round := range tuneRounds {
		for i := range found {
			m := &found[i]
			c.use(Plan{
				Version: PlanVersion, Shape: t.Policy.Shape, AllowInexact: true,
				Choices: []Choice{{Fused: p.Fused, Algorithm: m.Algorithm}},
			})
			timing, err := timePayload(c, p, (t.Iterations+tuneRounds-1)/tuneRounds)
			if err != nil {
				return nil, fmt.Errorf("tune %q: %w", m.Algorithm, err)
			}
			median, err := c.slowest(timing.Median)
			if err != nil {
				return nil, err
			}
			if round == 0 || median < m.Median {
				m.Median = median
			}
		}
	}
	return found, nil
}

// slowest is the largest of the ranks' durations, equal on all ranks.
func (c *Communicator) slowest(d time.Duration) (time.Duration, error) {
	widths := make([]int, c.size)
	for r := range widths {
		widths[r] = 1
	}
	all, err := c.AllGather([]float32{float32(d)}, 1, widths)
	if err != nil {
		return 0, err
	}
	var most float32
	for _, v := range all {
		most = max(most, v)
	}
	return time.Duration(most), nil
}

// fastest is the choice that a size's measurements lead to.
func fastest(found []Measurement, bytes int) Choice {
	best := found[0]
	var others []string
	for _, m := range found[1:] {
		if m.Median < best.Median {
			best, m = m, best
		}
		others = append(others, fmt.Sprintf("%s %v", m.Algorithm, m.Median))
	}
	why := "measured"
	if len(others) > 0 {
		why = "fastest measured; " + strings.Join(others, ", ")
	}
	return Choice{MaxBytes: bytes, Fused: best.Fused, Algorithm: best.Algorithm, Median: best.Median, Why: why}
}

// use makes plan the one that chooses, without the hash, for measurements.
func (c *Communicator) use(plan Plan) {
	c.plan, c.shape, c.last = plan, plan.Shape, nil
	clear(c.programs)
}
