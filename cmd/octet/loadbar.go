package main

import (
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
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

// busy shows, on a terminal, that a command is at work whose end nobody can foresee,
// until what it returns is called.
func busy(cmd *cobra.Command, what string) (over func()) {
	f, ok := cmd.ErrOrStderr().(*os.File)
	if !ok || !isTerminal(f) {
		return func() {}
	}
	bar := progressbar.NewOptions(-1, progressbar.OptionSetWriter(f), progressbar.OptionSetDescription(what),
		progressbar.OptionSpinnerType(11), progressbar.OptionSetElapsedTime(true), progressbar.OptionClearOnFinish())
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		turn := time.NewTicker(busyTurn)
		defer turn.Stop()
		for {
			select {
			case <-stop:
				_ = bar.Finish()
				return
			case <-turn.C:
				_ = bar.Add(1)
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
	}
}

// busyTurn is short enough to be seen turning and costs nothing.
const busyTurn = 200 * time.Millisecond

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
