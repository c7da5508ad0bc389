package process

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// lateTimers is how late the kernel may fire the timers of a child's threads. The
	// Go runtime's monitor sleeps for 20 us at a time while the process is busy, as
	// it is at its start, and with the kernel's usual 50 us of slack its waking is a
	// sixth of all the work of a start where eight ranks share two processors. A wake
	// by another thread is never late.
	lateTimers = time.Millisecond
	// promptTimers is what threads have that nobody gave another slack.
	promptTimers = 50 * time.Microsecond
)

// PromptTimers gives the calling thread, which must be locked to its goroutine, the
// usual precision of timers again, in a process that Start has started.
func PromptTimers() error { return setTimerSlack(promptTimers) }

// setTimerSlack is of the calling thread, and of threads and processes it then makes.
func setTimerSlack(slack time.Duration) error {
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0); err != nil {
		return fmt.Errorf("set the timer slack of a thread: %w", err)
	}
	return nil
}
