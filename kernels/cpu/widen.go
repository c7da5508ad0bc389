package cpu

import "github.com/octet-run/octet/kernels"

// Widen writes row r of a host tensor of any float type to dst, in float32.
func Widen(dst []float32, t kernels.Tensor, r int) { widen(dst, t, r) }
