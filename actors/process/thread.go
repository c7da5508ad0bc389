package process

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// WatchThread closes ended when a thread of another process has ended, at the latest
// with the process. Of a process that is killed every thread dies by itself, when it
// next has a processor, and the last one frees all memory before the parent hears of
// it: on a busy machine a thread that others wait for is gone long before. It needs
// Linux 6.9.
func WatchThread(pid, tid int) (ended <-chan struct{}, err error) {
	if _, err := os.Stat(fmt.Sprintf("/proc/%d/task/%d", pid, tid)); err != nil {
		return nil, fmt.Errorf("watch thread %d of process %d: there is none: %w", tid, pid, err)
	}
	fd, err := unix.PidfdOpen(tid, unix.PIDFD_THREAD)
	if err != nil {
		return nil, fmt.Errorf("watch thread %d of process %d: %w", tid, pid, err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer unix.Close(fd)
		// In a system call of its own: the runtime's poller may be looked at only every
		// ten milliseconds while all processors are busy.
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
				return
			}
		}
	}()
	return over, nil
}
