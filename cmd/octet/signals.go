package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// signalContext ends at the first SIGINT, SIGTERM or SIGHUP, with a signalError as its
// cause. A second one ends the process, and its ranks with it, after what lastly was
// told to do.
func signalContext() (context.Context, func()) {
	hurried := &hurried{}
	ctx, cancel := context.WithCancelCause(context.WithValue(context.Background(), hurriedKey{}, hurried))
	signals, over := make(chan os.Signal, 2), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // not under nohup
		signal.Notify(signals, syscall.SIGHUP)
	}
	go func() {
		for range 2 {
			select {
			case s := <-signals:
				cancel(signalError{s})
			case <-over:
				return
			}
		}
		hurried.run()
		os.Exit(exitInterrupted)
	}()
	return ctx, sync.OnceFunc(func() {
		signal.Stop(signals)
		close(over)
		cancel(nil)
	})
}

// signalError is a signal that ended a command.
type signalError struct{ signal os.Signal }

func (e signalError) Error() string { return "received " + e.signal.String() }

// hurried is what is done before a second signal ends the process: what would be left
// behind is removed.
type hurried struct {
	mu sync.Mutex
	do []func()
}

type hurriedKey struct{}

// lastly has something done before a second signal ends the process.
func lastly(ctx context.Context, do func()) {
	if h, ok := ctx.Value(hurriedKey{}).(*hurried); ok {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.do = append(h.do, do)
	}
}

func (h *hurried) run() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, do := range h.do {
		do()
	}
}
