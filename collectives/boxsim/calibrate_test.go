package boxsim

import (
	"testing"

	"github.com/octet-run/octet/deploy/boxes"
)

func TestPredictions(t *testing.T) {
	series, err := Calibrations()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"rtx-pro-6000x8", "rtx-pro-6000x8-broadcom", "h200x2", "this"} {
		box, err := boxes.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		v, err := Fit(box, series)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %s = %.4g", name, box.Fabric.Fitted, v)
		all, err := Compare(box, series)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			t.Logf("%-24s %d %-16s %-12s %8d  %7.1f  ours %7.1f %+.0f%%  line %7.1f %+.0f%%", name, c.Series.Ranks, c.Series.Stack, c.Point.Use, c.Point.Bytes, c.Point.US, c.US, 100*c.Error(), c.LineUS, 100*c.LineError())
		}
	}
}
