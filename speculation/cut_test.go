package speculation

import "testing"

func TestCutEndsAtTheFirstOfStopAndLength(t *testing.T) {
	stop := []int32{7, 8}
	for _, c := range []struct {
		name string
		run  []int32
		room int
		keep int
		why  Finish
	}{
		{"goes on", []int32{1, 2, 3}, 10, 3, NotFinished},
		{"stop token is kept, what follows is not", []int32{1, 7, 3, 8}, 10, 2, FinishStop},
		{"run crosses the limit after a stop", []int32{1, 8, 3, 4}, 3, 2, FinishStop},
		{"run crosses the limit before a stop", []int32{1, 2, 3, 8}, 3, 3, FinishLength},
		{"stop in the last place", []int32{1, 2, 7}, 3, 3, FinishStop},
		{"run ends at the limit", []int32{1, 2, 3}, 3, 3, FinishLength},
		{"no room", []int32{7}, 0, 0, FinishLength},
		{"empty run", nil, 2, 0, NotFinished},
	} {
		if keep, why := Cut(c.run, stop, c.room); keep != c.keep || why != c.why {
			t.Errorf("%s: kept %d, finish %d; want %d, %d", c.name, keep, why, c.keep, c.why)
		}
	}
}
