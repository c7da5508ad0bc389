package boxsim

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// tiny is a model of two layers.
func tiny() Model {
	return Model{Name: "<tiny> & small", Layers: 2, Hidden: 1024, Split: 1e8, Whole: 1e6, Experts: 16, TopK: 2, SparseLayers: 2, Expert: 1e6, CacheWhole: 1e3}
}

func question(t testing.TB, box string, ranks int) Decode {
	return Decode{
		Box: load(t, box), Model: tiny(), Ranks: ranks, Context: 100, Tokens: []int{1, 2, 4, 8},
		Draft: Draft{Acceptance: []float64{0.8, 0.7}, Sibling: 0.3, StepUS: 50},
	}
}

func TestPicturesAreWellFormed(t *testing.T) {
	for _, tc := range []struct {
		box   string
		ranks int
	}{{"rtx-pro-6000x8", 8}, {"rtx-pro-6000x8-broadcom", 8}, {"rtx-pro-6000x8-virtual-numa", 8}, {"h200x2", 2}, {"this", 8}} {
		d := question(t, tc.box, tc.ranks)
		rows, best, err := d.Rows()
		if err != nil || best.TokensPerS <= 0 {
			t.Fatalf("%s: best %+v (%v)", tc.box, best, err)
		}
		today, err := d.Today()
		if err != nil {
			t.Fatal(err)
		}
		picture, err := d.Draw(rows, today)
		if err != nil {
			t.Fatal(err)
		}
		decoder := xml.NewDecoder(bytes.NewReader(picture))
		for {
			if _, err := decoder.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", tc.box, err)
			}
		}
		for _, bad := range []string{"NaN", "Inf", "<tiny>"} {
			if strings.Contains(string(picture), bad) {
				t.Errorf("%s: the picture has %q in it", tc.box, bad)
			}
		}
		if !strings.Contains(string(picture), "tokens per second") || !strings.Contains(string(picture), best.Algorithm) {
			t.Errorf("%s: the picture lacks an axis title or %s", tc.box, best.Algorithm)
		}
	}
}
