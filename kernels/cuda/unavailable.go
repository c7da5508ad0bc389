//go:build !cuda

package cuda

import "github.com/octet-run/octet/kernels"

// New reports that the binary has no CUDA backend.
func New(c Config) (kernels.Backend, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	return nil, ErrNotBuilt
}

// Devices reports that the binary has no CUDA backend.
func Devices() ([]DeviceInfo, error) { return nil, ErrNotBuilt }
