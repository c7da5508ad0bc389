package boxsim

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/octet-run/octet/collectives/topology"
)

//go:embed calibration.json
var calibration []byte

// Series is the measurements of one stack on one box, by rising size.
type Series struct {
	Box       string  `json:"box"`
	Ranks     int     `json:"ranks"`
	Stack     string  `json:"stack"`
	Algorithm string  `json:"algorithm,omitempty"`
	Published bool    `json:"published,omitempty"` // by others, on eight GPUs
	Source    string  `json:"source"`
	Points    []Point `json:"points"`
}

// Point is one measurement.
type Point struct {
	Bytes int     `json:"bytes"`
	US    float64 `json:"us"`
	Use   Use     `json:"use"`
}

// Use is what a point is for.
type Use string

// The uses of a point.
const (
	Calibration Use = "calibration"
	HeldOut     Use = "held-out"
)

// Calibrations reads the committed list of points.
func Calibrations() ([]Series, error) {
	var list struct {
		Note   string   `json:"note"`
		Series []Series `json:"series"`
	}
	d := json.NewDecoder(bytes.NewReader(calibration))
	d.DisallowUnknownFields()
	if err := d.Decode(&list); err != nil {
		return nil, fmt.Errorf("the list of calibration points: %w", err)
	}
	return list.Series, nil
}

// predict is what the simulator says of one point.
func predict(box *topology.Box, s Series, bytes int) (float64, error) {
	stack, err := FindStack(s.Stack)
	if err != nil {
		return 0, err
	}
	r, err := Run(Config{Box: box, Ranks: s.Ranks, Stack: stack, Algorithm: s.Algorithm, Bytes: bytes})
	return r.US, err
}

// constant is the fitted constant of a fabric.
func constant(f *topology.Fabric) (get func() float64, set func(float64), err error) {
	path := func(r topology.Route) *topology.PathRates {
		return &f.Paths[slices.IndexFunc(f.Paths, func(p topology.PathRates) bool { return p.Route == r })]
	}
	var at []*float64
	switch f.Fitted {
	case "concurrent_gb_s":
		at = []*float64{&f.Device.ConcurrentGBps}
	case "collapse":
		for i := range f.Collapse {
			at = append(at, &f.Collapse[i].GBps)
		}
	case "nvlink_latency":
		at = []*float64{&path(topology.ByNVLink).LatencyUS}
	case "shared_gb_s":
		at = []*float64{&f.CPU.Shared[len(f.CPU.Shared)-1].GBps}
	default:
		return nil, nil, fmt.Errorf("no constant %q can be fitted", f.Fitted)
	}
	set = func(v float64) {
		for _, p := range at {
			*p = v
		}
	}
	return func() float64 { return *at[0] }, set, nil
}

// Fit determines the box's constant from the calibration points of its series: the
// value with the least sum of squared relative errors, within a factor of eight of
// the one that the box has. It changes the box and returns the value.
func Fit(box *topology.Box, series []Series) (float64, error) {
	if box.Fabric.Fitted == "" {
		return 0, fmt.Errorf("box %s has no constant that was fitted: nothing is known to be measured on one", box.Name)
	}
	get, set, err := constant(box.Fabric)
	if err != nil {
		return 0, err
	}
	loss := func(v float64) (float64, error) {
		set(v)
		var sum float64
		for _, s := range series {
			if s.Box != box.Name {
				continue
			}
			for _, p := range s.Points {
				if p.Use != Calibration {
					continue
				}
				us, err := predict(box, s, p.Bytes)
				if err != nil {
					return 0, err
				}
				sum += (us/p.US - 1) * (us/p.US - 1)
			}
		}
		return sum, nil
	}
	center, step := math.Log(get()), math.Log(8)/4
	for range 8 { // a grid of 9 values, each time three times as fine
		best, least := center, math.Inf(1)
		for i := -4; i <= 4; i++ {
			at := center + float64(i)*step
			l, err := loss(math.Exp(at))
			if err != nil {
				return 0, err
			}
			if l < least {
				best, least = at, l
			}
		}
		center, step = best, step/3
	}
	value := math.Exp(center)
	set(value)
	return value, nil
}

// Comparison is a point beside its predictions.
type Comparison struct {
	Series Series
	Point  Point
	US     float64 // ours
	// LineUS is of alpha + beta x size, fitted to the same points as our constant;
	// OwnLineUS of one such line for each series, NaN where it has too few points.
	LineUS, OwnLineUS float64
}

// Error is the relative error of the simulator.
func (c Comparison) Error() float64 { return c.US/c.Point.US - 1 }

// Compare predicts every point of the box's series.
func Compare(box *topology.Box, series []Series) ([]Comparison, error) {
	var out []Comparison
	var points []Point
	for _, s := range series {
		if s.Box == box.Name {
			points = append(points, s.Points...)
		}
	}
	all, perByte := line(points)
	for _, s := range series {
		if s.Box != box.Name {
			continue
		}
		alpha, beta := line(s.Points)
		for _, p := range s.Points {
			us, err := predict(box, s, p.Bytes)
			if err != nil {
				return nil, err
			}
			size := float64(p.Bytes)
			out = append(out, Comparison{Series: s, Point: p, US: us, LineUS: all + perByte*size, OwnLineUS: alpha + beta*size})
		}
	}
	return out, nil
}

// line fits alpha + beta x bytes to the calibration points, with the least squared
// relative errors, which is the fairest to it.
func line(points []Point) (alpha, beta float64) {
	var w, wx, wxx, wy, wxy float64
	var n int
	for _, p := range points {
		if p.Use != Calibration {
			continue
		}
		weight, x := 1/(p.US*p.US), float64(p.Bytes)
		w += weight
		wx += weight * x
		wxx += weight * x * x
		wy += weight * p.US
		wxy += weight * x * p.US
		n++
	}
	if n < 2 {
		return math.NaN(), math.NaN()
	}
	beta = (w*wxy - wx*wy) / (w*wxx - wx*wx)
	return (wy - beta*wx) / w, beta
}
