package process

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// startThread makes a thread of this process that ends when end is closed.
func startThread() (tid int, end chan struct{}) {
	begun, end := make(chan int), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() { // the main thread never ends
			tid, other := startThread()
			begun <- tid
			<-end
			close(other)
			runtime.UnlockOSThread()
			return
		}
		begun <- unix.Gettid()
		<-end // the thread ends with its locked goroutine
	}()
	return <-begun, end
}

func TestAThreadsEndIsSeenWhileItsProcessLives(t *testing.T) {
	first, endFirst := startThread()
	second, endSecond := startThread()
	firstEnded, err := WatchThread(os.Getpid(), first)
	if errors.Is(err, unix.EINVAL) {
		t.Skip("the kernel is older than Linux 6.9")
	}
	if err != nil {
		t.Fatal(err)
	}
	secondEnded, err := WatchThread(os.Getpid(), second)
	if err != nil {
		t.Fatal(err)
	}
	close(endFirst)
	<-firstEnded
	select {
	case <-secondEnded:
		t.Error("a thread that lives is told to have ended")
	default:
	}
	close(endSecond)
	<-secondEnded
	if _, err := WatchThread(os.Getpid(), os.Getppid()); err == nil {
		t.Error("a thread of another process is watched")
	}
}
