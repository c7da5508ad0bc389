package faults

import (
	"os"
	"syscall"
	"time"
)

// Strike carries out a verb that needs nothing of the place where it happens:
// the process dies, panics, hangs or is delayed, or an error comes back. Verbs
// that act on data do nothing here.
func Strike(f *Fault) error {
	if f == nil {
		return nil
	}
	switch f.Do {
	case Abort:
		// As abort(3) in native code: not a Go panic, nothing deferred runs.
		_ = syscall.Kill(os.Getpid(), syscall.SIGABRT)
		select {}
	case Exit:
		os.Exit(1)
	case Panic:
		panic("injected fault: panic at " + string(f.At))
	case Hang:
		if f.For == 0 {
			select {}
		}
		time.Sleep(f.For)
	case Spin:
		for start := time.Now(); f.For == 0 || time.Since(start) < f.For; {
		}
	case Delay:
		time.Sleep(f.For)
	case Fail:
		return ErrInjected
	}
	return nil
}
