package layers

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/model/checkpoint"
)

const blockRows, blockCols = 130, 200 // ragged in both directions: 2x2 scales

// fp8File is a safetensors file with one matrix in FP8 blocks.
func fp8File(codes []byte, scales [4]float32) []byte {
	header, _ := json.Marshal(map[string]any{
		"m.weight":           map[string]any{"dtype": "F8_E4M3", "shape": []int{blockRows, blockCols}, "data_offsets": []int{16, 16 + len(codes)}},
		"m.weight_scale_inv": map[string]any{"dtype": "F32", "shape": []int{2, 2}, "data_offsets": []int{0, 16}},
	})
	for len(header)%8 != 0 {
		header = append(header, ' ')
	}
	file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	for _, s := range scales {
		file = binary.LittleEndian.AppendUint32(file, math.Float32bits(s))
	}
	return append(file, codes...)
}

// takeFP8 takes [lo, hi) of the file's matrix.
func takeFP8(t *testing.T, file []byte, axis checkpoint.Axis, lo, hi int, cfg checkpoint.LoadConfig) error {
	t.Helper()
	files, err := checkpoint.OpenBytes("f.safetensors", file)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	w := Weights{Loader: files.NewLoader(cfg)}
	var m kernels.Matrix
	w.fp8(&m, checkpoint.Slice{Tensor: "m.weight", Rows: blockRows, Cols: blockCols, Axis: axis, Lo: lo, Hi: hi})
	_, err = w.Loader.Finish(func(string) bool { return false })
	return err
}

// numbers are all codes of E4M3 that are numbers, again and again.
func numbers() []byte {
	codes := make([]byte, blockRows*blockCols)
	for i := range codes {
		if codes[i] = byte(i); codes[i]&0x7F == 0x7F {
			codes[i]--
		}
	}
	return codes
}

func TestAnFP8WeightThatIsNoNumberIsRefusedByWhoeverTakesIt(t *testing.T) {
	good, one := numbers(), [4]float32{1, 1, 1, 1}
	for _, at := range [][2]int{{0, 0}, {0, 63}, {0, 64}, {57, 191}, {129, 198}, {129, 199}} {
		for _, code := range []byte{0x7F, 0xFF} {
			codes := append([]byte(nil), good...)
			codes[at[0]*blockCols+at[1]] = code
			file := fp8File(codes, one)
			want := fmt.Sprintf("f.safetensors: tensor m.weight: expected numbers, found NaN in row %d, column %d; ", at[0], at[1])
			for _, axis := range []checkpoint.Axis{checkpoint.ByRows, checkpoint.ByColumns} {
				full, mine := blockRows, at[0]
				if axis == checkpoint.ByColumns {
					full, mine = blockCols, at[1]
				}
				for rank := range 3 {
					lo, hi := full*rank/3, full*(rank+1)/3
					err := takeFP8(t, file, axis, lo, hi, checkpoint.LoadConfig{})
					if takes := lo <= mine && mine < hi; takes != (err != nil) || takes && !strings.HasPrefix(err.Error(), want) {
						t.Errorf("%v %d to %d, code %x at %v: error is %v", axis, lo, hi, code, at, err)
					}
				}
			}
			if err := takeFP8(t, file, checkpoint.Whole, 0, blockRows, checkpoint.LoadConfig{Lazy: true}); err != nil {
				t.Errorf("weights that are not to be read yet were: %v", err)
			}
		}
	}
	if err := takeFP8(t, fp8File(good, one), checkpoint.Whole, 0, blockRows, checkpoint.LoadConfig{}); err != nil {
		t.Errorf("all codes that are numbers: %v", err)
	}
}

func TestScalesThatAreNoNumbersAreRefused(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		for i := range 4 {
			scales := [4]float32{1, 1, 1, 1}
			scales[i] = float32(bad)
			err := takeFP8(t, fp8File(numbers(), scales), checkpoint.Whole, 0, blockRows, checkpoint.LoadConfig{})
			want := fmt.Sprintf("tensor m.weight_scale_inv: expected finite scales, found NaN or infinity in row %d", i/2)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("scale %d is %g: error is %v", i, bad, err)
			}
		}
	}
}

func BenchmarkNaNE4M3(b *testing.B) {
	row := make([]byte, 1<<20)
	b.SetBytes(int64(len(row)))
	for b.Loop() {
		if nanE4M3(row) >= 0 {
			b.Fatal("found one")
		}
	}
}
