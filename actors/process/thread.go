package process

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// WatchThreads closes ended when any of some threads of another process has ended, at
// the latest with the process. Of a process that is killed every thread dies by itself,
// when it next has a processor, and the last one frees all memory before the parent
// hears of it: on a busy machine a thread that others wait for, or one that sleeps and so
// is soon given a processor, is gone long before. It needs Linux 6.9. The first thread of
// a process counts as ended with the last.
func WatchThreads(pid int, tids ...int) (ended <-chan struct{}, err error) {
	var polls []unix.PollFd
	for _, tid := range tids {
		fd, err := openThread(pid, tid)
		if err != nil {
			closePolls(polls)
			return nil, fmt.Errorf("watch thread %d of process %d: %w", tid, pid, err)
		}
		polls = append(polls, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer closePolls(polls)
		// In a system call of its own: the runtime's poller may be looked at only every
		// ten milliseconds while all processors are busy.
		for {
			n, err := unix.Poll(polls, -1)
			if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
				return
			}
		}
	}()
	return over, nil
}

func openThread(pid, tid int) (fd int, err error) {
	if _, err := os.Stat(fmt.Sprintf("/proc/%d/task/%d", pid, tid)); err != nil {
		return -1, fmt.Errorf("there is none: %w", err)
	}
	return unix.PidfdOpen(tid, unix.PIDFD_THREAD)
}

func closePolls(polls []unix.PollFd) {
	for _, p := range polls {
		_ = unix.Close(int(p.Fd))
	}
}

// onOwnThread runs f on a thread on which nothing else runs, and which ends with f. It
// is not the first of the process, which ends with the last.
func onOwnThread(f func()) {
	runtime.LockOSThread() // never unlocked: the runtime ends the thread with this goroutine
	if unix.Gettid() != os.Getpid() {
		f()
		return
	}
	// As long as the first thread is locked here, the next goroutine gets another.
	elsewhere := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		close(elsewhere)
		f()
	}()
	<-elsewhere
	runtime.UnlockOSThread()
}
