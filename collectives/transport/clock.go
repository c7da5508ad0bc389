package transport

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// clock reads CLOCK_MONOTONIC, which all processes of the machine share, at the
// cost of time.Now: the system call is made once.
type clock struct {
	base time.Time
	at   int64
}

func newClock() (clock, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return clock{}, fmt.Errorf("read the monotonic clock: %w", err)
	}
	return clock{base: time.Now(), at: ts.Nano()}, nil
}

// now is in nanoseconds.
func (c clock) now() int64 { return c.at + int64(time.Since(c.base)) }
