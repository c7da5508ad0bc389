package process

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Guard is for the child: it makes this process end when the death pipe does. It takes
// the file. The thread that it returns does nothing but sleep until then: of a process
// that is killed it is among the first to be gone.
func Guard(deathPipe *os.File) (thread int, err error) {
	fd := deathPipe.Fd()
	// The kernel itself sends SIGKILL when the last writer is gone.
	if _, err := unix.FcntlInt(fd, unix.F_SETOWN, os.Getpid()); err == nil {
		if _, err := unix.FcntlInt(fd, unix.F_SETSIG, int(unix.SIGKILL)); err == nil {
			_, _ = unix.FcntlInt(fd, unix.F_SETFL, unix.O_ASYNC)
		}
	}
	// It may have gone before we asked.
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(poll, 0); err == nil && n > 0 && poll[0].Revents&unix.POLLHUP != 0 {
		return 0, fmt.Errorf("the parent process is gone")
	}
	begun := make(chan int)
	go onOwnThread(func() {
		begun <- unix.Gettid()
		readToDeath(deathPipe)
	})
	return <-begun, nil
}

// readToDeath sits in a read that returns only when the parent is gone.
func readToDeath(deathPipe *os.File) {
	var b [1]byte
	for {
		n, err := unix.Read(int(deathPipe.Fd()), b[:])
		if err == unix.EINTR || n > 0 {
			continue
		}
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		return
	}
}
