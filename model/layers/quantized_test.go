package layers

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/checkpoint"
)

const blockRows, blockCols = 130, 200 // ragged in both directions: 2x2 scales

// fp8File is a safetensors file with one matrix in FP8 blocks.
func fp8File(codes []byte, scales [4]float32) []byte {
	var stored []byte
	for _, s := range scales {
		stored = binary.LittleEndian.AppendUint32(stored, math.Float32bits(s))
	}
	return fp8FileOf("F32", stored, codes)
}

func fp8FileOf(scaleType string, scales, codes []byte) []byte {
	return fileOf(
		stored{"m.weight_scale_inv", scaleType, []int{2, 2}, scales},
		stored{"m.weight", "F8_E4M3", []int{blockRows, blockCols}, codes},
	)
}

// stored is a tensor of a safetensors file.
type stored struct {
	name, dtype string
	shape       []int
	data        []byte
}

func fileOf(tensors ...stored) []byte {
	entries, body := map[string]any{}, []byte(nil)
	for _, s := range tensors {
		entries[s.name] = map[string]any{"dtype": s.dtype, "shape": s.shape, "data_offsets": []int{len(body), len(body) + len(s.data)}}
		body = append(body, s.data...)
	}
	header, _ := json.Marshal(entries)
	for len(header)%8 != 0 {
		header = append(header, ' ')
	}
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), body...)
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

func TestScalesOfSixteenBitsAreWidened(t *testing.T) {
	want := []float32{1, 2, 0.5, 3}
	for dtype, bits := range map[string][4]uint16{
		"BF16": {0x3F80, 0x4000, 0x3F00, 0x4040},
		"F16":  {0x3C00, 0x4000, 0x3800, 0x4200},
	} {
		var scales []byte
		for _, b := range bits {
			scales = binary.LittleEndian.AppendUint16(scales, b)
		}
		files, err := checkpoint.OpenBytes("f.safetensors", fp8FileOf(dtype, scales, numbers()))
		if err != nil {
			t.Fatal(err)
		}
		w := Weights{Loader: files.NewLoader(checkpoint.LoadConfig{})}
		got := w.wideScales(checkpoint.Slice{Tensor: "m.weight_scale_inv", Rows: 2, Cols: 2, Lo: 0, Hi: 2})
		if values := slices.Concat(got.F32Row(0), got.F32Row(1)); !slices.Equal(values, want) {
			t.Errorf("%s scales are %v, want %v", dtype, values, want)
		}
		files.Close()
	}
}

func TestVectorsAndRoutersThatAreNoNumbersAreRefused(t *testing.T) {
	bits := make([]byte, 2*4*6)
	bits[2*(6+1)], bits[2*(6+1)+1] = 0xC0, 0x7F // NaN in row 1
	vector := stored{"v", "BF16", []int{6}, bits[12:24]}
	for name, take := range map[string]func(w *Weights){
		"v":      func(w *Weights) { w.vector("v", 6, 0, 6) },
		"v.bias": func(w *Weights) { w.F32Vector("v", 6) },
		"gate":   func(w *Weights) { w.gate("g", 4, 6) },
	} {
		files, err := checkpoint.OpenBytes("f.safetensors", fileOf(vector, stored{"g", "BF16", []int{4, 6}, bits}))
		if err != nil {
			t.Fatal(err)
		}
		w := Weights{Loader: files.NewLoader(checkpoint.LoadConfig{})}
		take(&w)
		_, err = w.Loader.Finish(func(string) bool { return true })
		if err == nil || !strings.Contains(err.Error(), ": expected finite numbers, found NaN or infinity in row ") {
			t.Errorf("%s: error is %v", name, err)
		}
		files.Close()
	}
}

// A layer that the list of exceptions forgot is as it stands in the file.
func TestLayersStoredPlainAreNotTakenForQuantised(t *testing.T) {
	const config = `{"architectures":["LlamaForCausalLM"],"hidden_size":8,"intermediate_size":8,"num_hidden_layers":1,"num_attention_heads":1,
		"vocab_size":8,"quantization_config":{"quant_method":"fp8","weight_block_size":[128,128]}}`
	fields, err := model.ParseFields("config.json", []byte(config))
	if err != nil {
		t.Fatal(err)
	}
	c, err := model.ParseConfig(fields)
	if err != nil {
		t.Fatal(err)
	}
	plain, codes, scale := make([]byte, 2*4*6), make([]byte, 4*6), make([]byte, 4)
	for _, test := range []struct {
		name    string
		file    []byte
		mention string // "" where the layer is loaded as it is
	}{
		{"plain", fileOf(stored{"m.weight", "BF16", []int{4, 6}, plain}), ""},
		{"plain beside scales", fileOf(stored{"m.weight_scale_inv", "F32", []int{1, 1}, scale}, stored{"m.weight", "BF16", []int{4, 6}, plain}), "found BF16"},
		{"codes without scales", fileOf(stored{"m.weight", "F8_E4M3", []int{4, 6}, codes}), "m.weight_scale_inv: expected shape [1, 1], found no such tensor"},
	} {
		files, err := checkpoint.OpenBytes("f.safetensors", test.file)
		if err != nil {
			t.Fatal(err)
		}
		w := Weights{Loader: files.NewLoader(checkpoint.LoadConfig{}), Quant: c.Quant, Shard: model.Shard{Ranks: 1}}
		m := w.Whole(Linear{Name: "m", Out: 4, In: 6})
		_, err = w.Loader.Finish(func(string) bool { return true })
		switch {
		case test.mention == "" && (err != nil || m.Format != kernels.Plain || m.Data.DType != kernels.BF16):
			t.Errorf("%s: format %v of %v, error %v", test.name, m.Format, m.Data.DType, err)
		case test.mention != "" && (err == nil || !strings.Contains(err.Error(), test.mention)):
			t.Errorf("%s: error %v does not mention %q", test.name, err, test.mention)
		}
		files.Close()
	}
}

func TestPackedInputsComeInWholeGroups(t *testing.T) {
	files, err := checkpoint.OpenBytes("f.safetensors", fileOf(stored{"m.weight_packed", "I32", []int{4, 5}, make([]byte, 80)}))
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	w := Weights{Loader: files.NewLoader(checkpoint.LoadConfig{})}
	var m kernels.Matrix
	w.int4(&m, "m", checkpoint.Slice{Rows: 4, Cols: 40, Hi: 4})
	_, err = w.Loader.Finish(func(string) bool { return true })
	if err == nil || !strings.Contains(err.Error(), "m.weight_packed: expected inputs in whole groups of 32, found 40 inputs") {
		t.Errorf("error is %v", err)
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
