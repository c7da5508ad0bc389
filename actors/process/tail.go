package process

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// ExitError says how a process ended, with what it wrote last.
type ExitError struct {
	Name   string
	PID    int
	Status string
	// Code is the exit status, -1 for a signal.
	Code int
	// Lines are the last lines of its output, oldest first.
	Lines []string
}

// Error is one sentence: the status and the line that tells most.
func (e *ExitError) Error() string {
	msg := fmt.Sprintf("%s (pid %d): %s", e.Name, e.PID, e.Status)
	if line := e.Telling(); line != "" {
		msg += ": " + line
	}
	return msg
}

// Telling is the line of the output that most likely says why: where a Go
// program crashed, the one above its stack; otherwise the last.
func (e *ExitError) Telling() string {
	for _, line := range e.Lines {
		if isCrash(line) {
			return line
		}
	}
	for i := len(e.Lines) - 1; i >= 0; i-- {
		if line := strings.TrimSpace(e.Lines[i]); line != "" {
			return line
		}
	}
	return ""
}

// isCrash reports whether a line is the head of a Go program's account of its crash:
// the last for a signal, as native code raises it.
func isCrash(line string) bool {
	return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") ||
		strings.HasPrefix(line, "SIG") && strings.Contains(line, ": ")
}

// What a tail keeps: enough for the head of a crash and for the last words.
const (
	keptLines = 64
	lineBytes = 2048
)

// tail reads lines off a pipe and keeps the last ones, and the head of a crash.
type tail struct {
	pipe *os.File
	done chan struct{}
	// crashing closes at the head of a crash.
	crashing chan struct{}

	mu    sync.Mutex
	lines []string
	crash bool // the first keptLines lines from here on are what matters
}

func newTail(pipe *os.File) *tail {
	return &tail{pipe: pipe, done: make(chan struct{}), crashing: make(chan struct{})}
}

// read reads to the end of the pipe, or until it is closed.
func (t *tail) read(log func(string)) {
	defer close(t.done)
	in := bufio.NewReaderSize(t.pipe, lineBytes)
	for {
		text, more, err := in.ReadLine()
		if err != nil {
			return
		}
		line := string(text)
		for more && err == nil { // the rest of an overlong line is dropped
			_, more, err = in.ReadLine()
		}
		t.keep(line)
		if log != nil {
			log(line)
		}
	}
}

func (t *tail) keep(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.crash && isCrash(line) {
		t.crash, t.lines = true, nil
		close(t.crashing)
	}
	if len(t.lines) == keptLines {
		if t.crash {
			return
		}
		t.lines = append(t.lines[:0], t.lines[1:]...)
	}
	t.lines = append(t.lines, line)
}

func (t *tail) last() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.lines...)
}

// finish waits until the pipe is read, for at most limit, and closes it.
func (t *tail) finish(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-t.done:
	case <-timer.C:
	}
	t.close()
	<-t.done
}

func (t *tail) close() { _ = t.pipe.Close() }
