package cuda

import (
	"errors"
	"fmt"
)

// Config says which device a Backend uses.
type Config struct {
	Device int // ordinal among the devices that this process sees
	// ScratchBytes bounds what one pass may take by Scratch; 0 means 1 GiB.
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
