package rank

import (
	"math"
	"strings"
	"testing"
)

func TestTheLikeliestTokenIsTheLowestOnTiesAndNoneOfNaN(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		logits []float32
		want   int32
		fails  string
	}{
		{logits: []float32{1, 3, 3, 2}, want: 1},
		{logits: []float32{-5}, want: 0},
		{logits: []float32{nan, 3}, fails: "token 0"},
		{logits: []float32{4, nan}, fails: "token 1"},
	} {
		got, err := likeliest(c.logits)
		switch {
		case c.fails == "" && (err != nil || got != c.want):
			t.Errorf("%v: %d, %v", c.logits, got, err)
		case c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)):
			t.Errorf("%v: error %v, want one about %s", c.logits, err, c.fails)
		}
	}
}
