package collectives

import "github.com/octet-run/octet/kernels/cpu"

// sumTree writes the tree sum of sources to dst. All have the length of dst.
func sumTree(dst []float32, sources [][]float32) {
	n := len(dst)
	switch len(sources) {
	case 1:
		copy(dst, sources[0])
	case 2:
		a, b := sources[0][:n], sources[1][:n]
		for i := range dst {
			dst[i] = a[i] + b[i]
		}
	case 4:
		a, b, c, d := sources[0][:n], sources[1][:n], sources[2][:n], sources[3][:n]
		for i := range dst {
			dst[i] = (a[i] + b[i]) + (c[i] + d[i])
		}
	case 8:
		a, b, c, d := sources[0][:n], sources[1][:n], sources[2][:n], sources[3][:n]
		e, f, g, h := sources[4][:n], sources[5][:n], sources[6][:n], sources[7][:n]
		for i := range dst {
			dst[i] = ((a[i] + b[i]) + (c[i] + d[i])) + ((e[i] + f[i]) + (g[i] + h[i]))
		}
	default:
		for i := range dst {
			dst[i] = treeAt(sources, i)
		}
	}
}

// treeAt is element i of the tree sum. The left half of a tree is the largest
// power of two that is less than the number of leaves.
func treeAt(sources [][]float32, i int) float32 {
	if len(sources) == 1 {
		return sources[0][i]
	}
	half := leftLeaves(len(sources))
	return treeAt(sources[:half], i) + treeAt(sources[half:], i)
}

func leftLeaves(n int) int {
	half := 1
	for half*2 < n {
		half *= 2
	}
	return half
}

// add adds x to dst.
func add(dst, x []float32) {
	for i := range dst {
		dst[i] += x[i]
	}
}

// normRows writes the rows of x normalised with weight to dst.
func normRows(dst, x []float32, width int, weight []float32, eps float32) {
	for lo := 0; lo < len(x); lo += width {
		row := x[lo : lo+width]
		scale := cpu.InverseRMS(sumSquares(row), width, eps)
		for i, v := range row {
			dst[lo+i] = v * scale * weight[i]
		}
	}
}

func sumSquares(x []float32) float32 {
	var total float32
	for _, v := range x {
		total += v * v
	}
	return total
}
