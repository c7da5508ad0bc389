package cuda

import (
	"errors"
	"fmt"
	"strings"
)

// Config says which device a Backend uses.
type Config struct {
	Device int    // ordinal among the devices that this process sees
	PCI    string // or its PCI address, such as 0000:41:00.0
	// ScratchBytes bounds what one pass may take by Scratch; 0: no bound.
	ScratchBytes int
}

func (c Config) validate() error {
	if c.Device < 0 {
		return fmt.Errorf("cuda: device %d: give 0 or more", c.Device)
	}
	if c.ScratchBytes < 0 {
		return fmt.Errorf("cuda: %d bytes of scratch: give 0 or more", c.ScratchBytes)
	}
	return nil
}

// ErrNotBuilt is returned where the binary was built without the tag `cuda`.
var ErrNotBuilt = errors.New("cuda: this binary was built without CUDA; build it with a C compiler and the tag cuda (make build does)")

// Error is a failed call of the CUDA driver.
type Error struct {
	Op   string // what was tried
	Code int    // CUresult
	Text string // the driver's name for Code, or the compiler's log
}

func (e *Error) Error() string {
	return fmt.Sprintf("cuda: %s: %s (CUresult %d)", e.Op, e.Text, e.Code)
}

// ErrNoDriver is returned where there is no NVIDIA driver, or none that has a device.
var ErrNoDriver = errors.New("cuda: there is no NVIDIA GPU here, or no driver for it (libcuda.so.1)")

// DeviceInfo describes a GPU that a process may use.
type DeviceInfo struct {
	PCI          string `json:"pci"` // address in the form of sysfs, such as 0000:41:00.0
	Name         string `json:"name"`
	MemoryBytes  int64  `json:"memory_bytes"`
	Major, Minor int    // compute capability
}

// LeastCapability is what the kernels need: sm_80, the A100's.
const LeastCapability = 8

// pciAddress is the driver's address in the form of sysfs: lower case, four digits
// of domain.
func pciAddress(id string) string {
	id = strings.ToLower(id)
	if len(id) == len("00000000:41:00.0") {
		id = strings.TrimPrefix(id, "0000")
	}
	return id
}
