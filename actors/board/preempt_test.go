package board

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/octet-run/octet/internal/shm"
)

// roleVariable makes the test binary a process with one waiting thread and a
// collector that runs against it.
const roleVariable = "OCTET_TEST_BOARD_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "":
		goleak.VerifyTestMain(m)
	case "deaf":
		w := new(shm.Word)
		tryCollector(w, func() { sleepDeaf(unsafe.Pointer(w)) })
	case "polite":
		w := new(shm.Word)
		tryCollector(w, func() {
			for {
				w.Sleep(0)
			}
		})
	}
}

// tryCollector says when a collection has finished while wait waits for the word.
// It may never come to that: who started this process ends it.
func tryCollector(w *shm.Word, wait func()) {
	thread := make(chan int)
	go func() {
		runtime.LockOSThread()
		thread <- unix.Gettid()
		wait()
	}()
	inWait := fmt.Sprintf("%d %p ", unix.SYS_FUTEX, w)
	for path := fmt.Sprintf("/proc/self/task/%d/syscall", <-thread); ; time.Sleep(time.Millisecond) {
		if call, err := os.ReadFile(path); err != nil || strings.HasPrefix(string(call), inWait) {
			break
		}
	}
	runtime.GC()
	fmt.Println("finished")
	os.Exit(0)
}

// sleepDeaf waits as nobody should: in one raw system call, with no point in the
// loop at which the scheduler could take the thread.
//
//go:nosplit
func sleepDeaf(word unsafe.Pointer) {
	for {
		syscall.RawSyscall6(unix.SYS_FUTEX, uintptr(word), 0, 0, 0, 0, 0)
	}
}

// The waits of this package leave the collector alone; one that does not is
// caught by the same check.
func TestOnlyADeafWaitHoldsUpTheCollector(t *testing.T) {
	for role, finishes := range map[string]bool{"polite": true, "deaf": false} {
		limit := time.Second
		if finishes {
			limit = unhurried.Stall // a busy machine is no failure
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		c := exec.CommandContext(ctx, os.Args[0])
		c.Env = append(os.Environ(), roleVariable+"="+role)
		out, _ := c.Output() // an error where it is killed
		if finished := strings.TrimSpace(string(out)) == "finished"; finished != finishes {
			t.Errorf("%s wait: the collector finished: %v, want %v", role, finished, finishes)
		}
	}
}

// How long a collection takes while a thread waits for a round: what it may add to
// the round that comes meanwhile.
func BenchmarkCollectionWhileWaiting(b *testing.B) {
	var word shm.Word
	var over atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		for !over.Load() {
			word.Sleep(0)
		}
	}()
	for b.Loop() {
		runtime.GC()
	}
	over.Store(true)
	<-ended
}
