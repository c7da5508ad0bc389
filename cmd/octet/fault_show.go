package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/octet-run/octet/actors"
)

// showing prints the first request of stream 0 as it comes, with what happens to
// the group marked where it happens. Its methods do nothing on nil, and after the
// request's end.
type showing struct {
	out io.Writer

	mu    sync.Mutex
	live  bool
	over  bool
	lost  time.Time
	marks int
}

// newShowing is nil where a machine reads.
func newShowing(cmd *cobra.Command) *showing {
	if wantJSON(cmd) {
		return nil
	}
	return &showing{out: cmd.OutOrStdout()}
}

// begin says what will be seen.
func (s *showing) begin(streams int, ranks int) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live = true
	fmt.Fprintf(s.out, "%d streams on %d ranks; the first of them, as it comes:\n\n", streams, ranks)
}

func (s *showing) text(text string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live && !s.over {
		fmt.Fprint(s.out, text)
	}
}

// mostMarks is how many events are shown: a chaos run has hundreds.
const mostMarks = 8

// event marks a loss, and the end of the pause after it.
func (s *showing) event(e actors.Event) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.live || s.over || s.marks >= mostMarks {
		return
	}
	switch {
	case e.Kind == actors.RankLost:
		s.lost = e.Time
		fmt.Fprintf(s.out, "\n\n  ⏸ %s\n", e.Message)
	case e.Kind == actors.GroupServes && !s.lost.IsZero():
		s.marks++
		fmt.Fprintf(s.out, "  ⏵ the group serves again in epoch %d, %d ms later\n\n", e.Epoch, e.Time.Sub(s.lost).Milliseconds())
		s.lost = time.Time{}
	}
}

// end is the end of the request that is shown.
func (s *showing) end() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live && !s.over {
		fmt.Fprintln(s.out)
	}
	s.over = true
}
