package telemetry

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"time"
)

// Config says how a Watch runs its reporter.
type Config struct {
	// Command makes a reporter's process: a program that calls Run on its stdout.
	Command func(ctx context.Context) *exec.Cmd
	// Limit is how long a reporter may say nothing; 0: 5 s. One that is killed for it,
	// or ends, is started again after as long.
	Limit time.Duration
}

func (c *Config) validate() error {
	if c.Command == nil {
		return errors.New("telemetry: no command to start")
	}
	if c.Limit < 0 {
		return fmt.Errorf("telemetry: a limit of %v", c.Limit)
	}
	return nil
}

// Watch keeps a reporter's process and what it last said.
type Watch struct {
	config Config
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	gpus   []Sample
	heard  time.Time
	err    error // why there is nothing new
	killed int
}

// NewWatch starts the reporter. Close ends it.
func NewWatch(c Config) (*Watch, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if c.Limit == 0 {
		c.Limit = 5 * time.Second
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &Watch{config: c, cancel: cancel, done: make(chan struct{})}
	go w.keep(ctx)
	return w, nil
}

// Latest is the last sample of each GPU, when it came, and why none came since, if
// something is wrong.
func (w *Watch) Latest() ([]Sample, time.Time, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gpus, w.heard, w.err
}

// Killed is how many reporters said nothing for too long.
func (w *Watch) Killed() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.killed
}

// Close ends the reporter and waits for it.
func (w *Watch) Close() {
	w.cancel()
	<-w.done
}

// keep runs one reporter after another.
func (w *Watch) keep(ctx context.Context) {
	defer close(w.done)
	for {
		err := w.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		w.note(err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(w.config.Limit):
		}
	}
}

// follow reads one reporter to its end.
func (w *Watch) follow(ctx context.Context) error {
	ctx, kill := context.WithCancel(ctx)
	defer kill()
	cmd := w.config.Command(ctx)
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("telemetry: start the reporter: %w", err)
	}
	late := time.AfterFunc(w.config.Limit, func() {
		w.mu.Lock()
		w.killed++
		w.mu.Unlock()
		kill()
	})
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	var said error
	for lines.Scan() {
		if !late.Reset(w.config.Limit) {
			break // it is being killed
		}
		said = w.take(lines.Bytes())
	}
	onTime := late.Stop()
	ended := cmd.Wait()
	switch {
	case !onTime:
		return fmt.Errorf("telemetry: the reporter said nothing for %v and was killed", w.config.Limit)
	case said != nil:
		return said
	case ended != nil:
		return fmt.Errorf("telemetry: the reporter ended: %w", ended)
	}
	return errors.New("telemetry: the reporter ended")
}

// take keeps what a line says.
func (w *Watch) take(line []byte) error {
	var r Report
	if err := json.Unmarshal(line, &r); err != nil {
		return fmt.Errorf("telemetry: the reporter printed %.80q", line)
	}
	if r.Error != "" {
		return errors.New(r.Error)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gpus, w.heard, w.err = r.GPUs, time.Now(), nil
	return nil
}

func (w *Watch) note(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}
