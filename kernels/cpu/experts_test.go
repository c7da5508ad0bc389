package cpu

import (
	"math"
	"slices"
	"testing"

	"github.com/octet-run/octet/kernels"
)

func TestTopKOrdersByValueThenIndex(t *testing.T) {
	b := newBackend(t, Config{})
	s := newSource(7)
	for range 200 {
		rows, cols, k := s.IntN(4), s.IntN(50)+s.IntN(2)*s.IntN(2000), 1+s.IntN(12)
		x := s.f32(rows, cols)
		for r := range rows {
			for i := range cols {
				x.F32Row(r)[i] = float32(s.IntN(99))
			}
		}
		values, ids := s.f32(rows, k), s.i32(rows, k, 9)
		b.TopK(values, ids, x, k)
		for r := range rows {
			row := x.F32Row(r)
			order := make([]int, cols)
			for i := range order {
				order[i] = i
			}
			slices.SortStableFunc(order, func(i, j int) int { return int(row[j] - row[i]) })
			for i := range k {
				id, v := int32(-1), float32(math.Inf(-1))
				if i < cols {
					id, v = int32(order[i]), row[order[i]]
				}
				if ids.I32Row(r)[i] != id || values.F32Row(r)[i] != v {
					t.Fatalf("row %v: choice %d is %d (%v), want %d (%v)", row, i, ids.I32Row(r)[i], values.F32Row(r)[i], id, v)
				}
			}
		}
	}
}

func TestRouteSoftmaxNormalisesTheChosen(t *testing.T) {
	b := newBackend(t, Config{})
	logits := kernels.HostTensor(kernels.F32, 1, 4, []float32{1, 3, 3, 2})
	ids := kernels.HostTensor(kernels.I32, 1, 2, make([]int32, 2))
	weights := kernels.HostTensor(kernels.F32, 1, 2, make([]float32, 2))
	b.Route(ids, weights, logits, kernels.Router{Experts: 4, TopK: 2, Normalize: true})
	if got := ids.I32Row(0); got[0] != 1 || got[1] != 2 {
		t.Fatalf("chose %v, want the lower index of the tie first", got)
	}
	near(t, "weight", weights.F32Row(0)[0], 0.5, 1, 1e-6)
	b.Route(ids, weights, logits, kernels.Router{Experts: 4, TopK: 2, Scale: 2})
	near(t, "weight", weights.F32Row(0)[0], 2*math.E*math.E/(1+math.E+2*math.E*math.E), 1, 1e-6)
}

func TestRouteSigmoidChoosesByBiasAndGroupWeighsByScore(t *testing.T) {
	b := newBackend(t, Config{})
	// Groups {0,1}, {2,3}, {4,5}: with the bias the last two have the best pairs,
	// although expert 0 has the best score of all.
	logits := kernels.HostTensor(kernels.F32, 1, 6, []float32{5, -5, 1, 1, 0, 2})
	bias := kernels.HostTensor(kernels.F32, 1, 6, []float32{0, 0, 0, 0, 0.5, 0})
	ids := kernels.HostTensor(kernels.I32, 1, 3, make([]int32, 3))
	weights := kernels.HostTensor(kernels.F32, 1, 3, make([]float32, 3))
	b.Route(ids, weights, logits, kernels.Router{
		Experts: 6, TopK: 3, Sigmoid: true, Groups: 3, TopGroups: 2, Normalize: true, Scale: 2.5, Bias: bias,
	})
	if got := ids.I32Row(0); got[0] != 4 || got[1] != 5 || got[2] != 2 {
		t.Fatalf("chose %v, want [4 5 2]", got)
	}
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	sum := sigmoid(0) + sigmoid(2) + sigmoid(1)
	for i, x := range []float64{0, 2, 1} {
		near(t, "weight", weights.F32Row(0)[i], 2.5*sigmoid(x)/sum, 1, 1e-6)
	}
}

func TestExpertsAddTheWeightedOutputsOfTheLocalOnes(t *testing.T) {
	everyISA(t, testExperts)
}

func testExperts(t *testing.T, b *Backend) {
	s := newSource(8)
	const hidden, width, local, first, topK = 64, 96, 3, 2, 2
	for _, format := range []string{"bf16", "int4", "fp8", "f32"} {
		var gate, up, down []kernels.Matrix
		for range local {
			gate = append(gate, s.matrices(width, hidden)[format])
			up = append(up, s.matrices(width, hidden)[format])
			down = append(down, s.matrices(hidden, width)[format])
		}
		rows := 150 // more than one block
		x, dst := s.f32(rows, hidden), s.f32(rows, hidden)
		ids, weights := s.i32(rows, topK, 7), s.f32(rows, topK)
		want := s.f32(rows, hidden)
		b.Copy(want, dst)
		for r := range rows {
			for c, id := range ids.I32Row(r) {
				e := int(id) - first
				if e < 0 || e >= local {
					continue
				}
				g, u, y := s.f32(1, width), s.f32(1, width), s.f32(1, hidden)
				b.MatMul(g, x.RowRange(r, r+1), gate[e])
				b.MatMul(u, x.RowRange(r, r+1), up[e])
				b.SwiGLU(g, g, u)
				b.MatMul(y, g, down[e])
				oracleAxpy(want.F32Row(r), weights.F32Row(r)[c], y.F32Row(0))
			}
		}
		b.Experts(dst, x, ids, weights, gate, up, down, first)
		if err := b.Sync(); err != nil {
			t.Fatal(err)
		}
		sameBits(t, format, dst, want)
	}
}

func TestLogSumExp(t *testing.T) {
	b := newBackend(t, Config{})
	s := newSource(9)
	x, dst := s.f32(3, 1000), s.f32(3, 1)
	b.LogSumExp(dst, x)
	for r := range 3 {
		var sum float64
		for _, v := range x.F32Row(r) {
			sum += math.Exp(float64(v))
		}
		near(t, "logsumexp", dst.F32Row(r)[0], math.Log(sum), 1, 1e-6)
	}
}
