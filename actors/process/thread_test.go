package process

import (
	"errors"
	"fmt"
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
	firstEnded, err := WatchThreads(os.Getpid(), first)
	if errors.Is(err, unix.EINVAL) {
		t.Skip("the kernel is older than Linux 6.9")
	}
	if err != nil {
		t.Fatal(err)
	}
	secondEnded, err := WatchThreads(os.Getpid(), second)
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
	third, endThird := startThread()
	either, err := WatchThreads(os.Getpid(), third, second)
	if err != nil {
		t.Fatal(err)
	}
	close(endSecond)
	<-secondEnded
	<-either
	close(endThird)
	if _, err := WatchThreads(os.Getpid(), os.Getppid()); err == nil {
		t.Error("a thread of another process is watched")
	}
}

// A guard's thread is one of the process's, and not the first, which is the last to end.
func TestTheThreadOfAGuardEndsWithItsProcess(t *testing.T) {
	words := make(chan string, 1)
	c := role("sleep")
	c.Log = func(line string) { words <- line }
	child, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	defer waitDone(t, child)
	defer child.Kill()
	var thread int
	if line := <-words; scanThread(line, &thread) != nil || thread == child.PID() {
		t.Fatalf("process %d says %q, want a thread beside its first", child.PID(), line)
	}
	ended, err := WatchThreads(child.PID(), thread)
	if errors.Is(err, unix.EINVAL) {
		t.Skip("the kernel is older than Linux 6.9")
	}
	if err != nil {
		t.Fatal(err)
	}
	child.Kill()
	<-ended
}

func scanThread(line string, thread *int) error {
	_, err := fmt.Sscanf(line, "sleeping %d", thread)
	return err
}
