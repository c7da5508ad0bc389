package actors

import "runtime"

// thread is an operating-system thread on which an engine lives and dies.
type thread struct{ work chan func() }

func startThread() *thread {
	t := &thread{work: make(chan func())}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its engine
		for f := range t.work {
			f()
		}
	}()
	return t
}

// do runs f on the thread and waits for it.
func (t *thread) do(f func()) {
	done := make(chan struct{})
	t.work <- func() {
		defer close(done)
		f()
	}
	<-done
}

// end ends the thread, which must be idle.
func (t *thread) end() { close(t.work) }
