package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/octet-run/octet/actors"
)

// loadBar shows how many bytes of weights are loaded, all ranks together.
type loadBar struct {
	w io.Writer

	mu    sync.Mutex
	over  bool   // later events are of a group that forms again
	drawn string // what is on the terminal now
	ranks map[int]actors.Event
}

// newLoadBar draws on w, which must be a terminal to be drawn on.
func newLoadBar(w io.Writer) *loadBar {
	if f, ok := w.(*os.File); !ok || !isTerminal(f) {
		w = nil
	}
	return &loadBar{w: w, ranks: map[int]actors.Event{}}
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

func (l *loadBar) event(e actors.Event) {
	if l.w == nil || e.Kind != actors.RankLoading {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return
	}
	l.ranks[e.Rank] = e
	var done, total int64
	for _, r := range l.ranks {
		done, total = done+int64(r.Done), total+int64(r.Total)
	}
	if line := barLine(done, total); line != l.drawn {
		fmt.Fprint(l.w, "\r"+line)
		l.drawn = line
	}
}

// finish takes the bar away.
func (l *loadBar) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.drawn != "" {
		fmt.Fprint(l.w, "\r"+strings.Repeat(" ", len(l.drawn))+"\r")
		l.drawn = ""
	}
	l.over = true
}

const barWidth = 30

// barLine is as wide for any part of one total.
func barLine(done, total int64) string {
	part := 1.0
	if total > 0 {
		part = min(max(float64(done)/float64(total), 0), 1)
	}
	size := fmt.Sprintf("%.2f", float64(total)/(1<<30))
	bar := strings.Repeat("=", int(part*barWidth))
	return fmt.Sprintf("loading %3d%% [%-*s] %*.2f of %s GiB", int(100*part), barWidth, bar, len(size), float64(done)/(1<<30), size)
}
