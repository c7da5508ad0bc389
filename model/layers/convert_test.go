package layers

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/octet-run/octet/kernels"
)

// TestFiniteFindsWhatIsNoNumber compares with a widened look at every value, over
// random bits and lengths that are no multiple of a word.
func TestFiniteFindsWhatIsNoNumber(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, d := range []kernels.DType{kernels.F32, kernels.BF16, kernels.F16} {
		verdicts := map[bool]int{}
		for range 2000 {
			n := 1 + rng.IntN(40)
			data := make([]uint64, n)
			bytes := unsafe.Slice((*byte)(unsafe.Pointer(&data[0])), n*d.Bytes())
			for i := range bytes {
				bytes[i] = byte(rng.Uint32())
			}
			row := kernels.Tensor{Host: unsafe.Pointer(&data[0]), DType: d, Rows: 1, Cols: n, Stride: n}
			want := true
			for _, v := range floatsOf(row, 0) {
				want = want && !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0)
			}
			verdicts[want]++
			if got := finite(row, 0); got != want {
				t.Fatalf("%v: finite is %v for %v", d, got, floatsOf(row, 0))
			}
		}
		if verdicts[true] == 0 || verdicts[false] == 0 {
			t.Errorf("%v: verdicts %v test one answer alone", d, verdicts)
		}
	}
}
