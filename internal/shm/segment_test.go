package shm

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestTwoMappingsOfOneSegmentShareMemory(t *testing.T) {
	a, err := Create("octet-test", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	fd, err := unix.Dup(int(a.File().Fd()))
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open(os.NewFile(uintptr(fd), "dup"))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	a.Word(64).Store(7)
	if got := b.Word(64).Load(); got != 7 {
		t.Fatalf("second mapping reads %d, want 7", got)
	}
}

func TestBlockEndsByWakeOrLimit(t *testing.T) {
	s, err := Create("octet-test", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w := s.Word(0)
	w.Block(0, time.Millisecond) // nobody wakes it
	done := make(chan struct{})
	go func() {
		defer close(done)
		for w.Load() == 0 {
			w.Block(0, time.Second)
		}
	}()
	time.Sleep(5 * time.Millisecond)
	w.Store(1)
	w.WakeAll()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		t.Fatal("the waiter did not wake")
	}
}

func TestWakeEndsASleep(t *testing.T) {
	s, err := Create("octet-test", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w := s.Word(0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for w.Load() == 0 {
			w.Sleep(0)
		}
	}()
	time.Sleep(5 * time.Millisecond)
	w.Store(1)
	w.WakeAll()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		t.Fatal("the sleeper did not wake")
	}
}
