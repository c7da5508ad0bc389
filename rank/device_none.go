//go:build !cuda

package rank

import "github.com/octet-run/octet/kernels/cuda"

// openDevice reports that this build has no CUDA backend.
func openDevice(*Config, int, func()) (device, error) { return nil, cuda.ErrNotBuilt }
