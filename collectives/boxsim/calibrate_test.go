package boxsim

import (
	"math"
	"testing"

	"github.com/octet-run/octet/collectives/topology"
	"github.com/octet-run/octet/deploy/boxes"
)

// heldOutError bounds the relative error on points that nothing was fitted to.
const heldOutError = 0.25

var calibratedBoxes = []string{"rtx-pro-6000x8", "rtx-pro-6000x8-broadcom", "h200x2", "this"}

func load(t testing.TB, name string) *topology.Box {
	t.Helper()
	box, err := boxes.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return box
}

func calibrations(t testing.TB) []Series {
	t.Helper()
	series, err := Calibrations()
	if err != nil {
		t.Fatal(err)
	}
	return series
}

func TestHeldOutPointsAreReproduced(t *testing.T) {
	for _, name := range calibratedBoxes {
		all, err := Compare(load(t, name), calibrations(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			if c.Point.Use == HeldOut && math.Abs(c.Error()) > heldOutError {
				t.Errorf("%s, %s, %d ranks, %d bytes: %.1f us, measured %.1f", name, c.Series.Stack, c.Series.Ranks, c.Point.Bytes, c.US, c.Point.US)
			}
		}
	}
}

func TestSimulationBeatsALine(t *testing.T) {
	for _, name := range calibratedBoxes {
		all, err := Compare(load(t, name), calibrations(t))
		if err != nil {
			t.Fatal(err)
		}
		var ours, line, n float64
		for _, c := range all {
			if c.Point.Use == HeldOut {
				ours += math.Abs(c.Error())
				line += math.Abs(c.LineUS/c.Point.US - 1)
				n++
			}
		}
		if ours >= line {
			t.Errorf("%s: mean error %.1f %%, of a line %.1f %%", name, 100*ours/n, 100*line/n)
		}
	}
}

// Even a line of its own for every series, with two constants each, does worse on
// what others published of eight GPUs.
func TestPublishedPointsAreCloserThanLinesOfTheirOwn(t *testing.T) {
	var ours, line, n float64
	for _, name := range calibratedBoxes {
		all, err := Compare(load(t, name), calibrations(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			if c.Point.Use == HeldOut && c.Series.Published && !math.IsNaN(c.OwnLineUS) {
				ours += math.Abs(c.Error())
				line += math.Abs(c.OwnLineUS/c.Point.US - 1)
				n++
			}
		}
	}
	if n == 0 || ours >= line {
		t.Errorf("mean error over %.0f points %.1f %%, of lines %.1f %%", n, 100*ours/n, 100*line/n)
	}
}

func TestBoxesHaveTheFittedConstant(t *testing.T) {
	for _, name := range calibratedBoxes {
		box := load(t, name)
		get, _, err := constant(box.Fabric)
		if err != nil {
			t.Fatal(err)
		}
		committed := get()
		fitted, err := Fit(box, calibrations(t))
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(fitted/committed-1) > 0.03 {
			t.Errorf("%s: %s is %.4g in the box, %.4g by the fit", name, box.Fabric.Fitted, committed, fitted)
		}
	}
}

func TestEveryUseIsKnownAndSizesAlternate(t *testing.T) {
	for _, s := range calibrations(t) {
		for i, p := range s.Points {
			if p.Use != Calibration && p.Use != HeldOut {
				t.Errorf("%s %s: use %q", s.Box, s.Stack, p.Use)
			}
			if i > 0 && (p.Bytes <= s.Points[i-1].Bytes || p.Use == Calibration && s.Points[i-1].Use == Calibration) {
				t.Errorf("%s %s: sizes do not rise, or two neighbours are calibration points: %v", s.Box, s.Stack, s.Points)
			}
		}
	}
}
