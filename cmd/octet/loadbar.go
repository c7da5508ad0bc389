package main

import (
	"io"
	"os"
	"sync"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/sys/unix"

	"github.com/octet-run/octet/actors"
)

// loadBar shows how many bytes of weights are loaded, all ranks together.
type loadBar struct {
	w io.Writer

	mu    sync.Mutex
	over  bool // later events are of a group that forms again
	bar   *progressbar.ProgressBar
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
	if l.bar == nil {
		l.bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(l.w), progressbar.OptionSetDescription("loading"),
			progressbar.OptionShowBytes(true), progressbar.OptionShowCount(), progressbar.OptionClearOnFinish(), progressbar.OptionSetWidth(30))
	}
	l.bar.ChangeMax64(total)
	_ = l.bar.Set64(done)
}

func (l *loadBar) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bar != nil {
		_ = l.bar.Finish()
	}
	l.over = true
}
