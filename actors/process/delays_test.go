package process

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// look is what the kernel shows of a thread at some time after the start.
type look struct {
	at         time.Duration
	state      byte
	ran, delay time.Duration
}

func TestOnlyTimeWithoutAProcessorOrADiskIsHeld(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		looks   []look
		held    time.Duration
		stopped bool
	}{
		"computes without end":   {[]look{{0, 'R', 0, 0}, {100 * ms, 'R', 100 * ms, 0}, {200 * ms, 'R', 200 * ms, 0}}, 0, false},
		"sleeps":                 {[]look{{0, 'S', 5 * ms, ms}, {200 * ms, 'S', 5 * ms, ms}}, 0, false},
		"shares a processor":     {[]look{{0, 'R', 0, 0}, {100 * ms, 'R', 20 * ms, 80 * ms}, {200 * ms, 'R', 40 * ms, 160 * ms}}, 160 * ms, false},
		"has not had its turn":   {[]look{{0, 'R', 7, 9}, {100 * ms, 'R', 7, 9}, {200 * ms, 'R', 7, 9}}, 200 * ms, false},
		"had its turn at last":   {[]look{{0, 'R', 7, 0}, {100 * ms, 'R', 7, 0}, {200 * ms, 'R', 8, 190 * ms}}, 190 * ms, false},
		"reads from a disk":      {[]look{{0, 'D', 0, 0}, {100 * ms, 'D', 0, 0}, {200 * ms, 'S', 0, 0}}, 100 * ms, false},
		"is stopped by a signal": {[]look{{0, 'R', 0, 0}, {100 * ms, 'T', 0, 0}}, 0, true},
		"waited before the watch": {
			[]look{{0, 'S', time.Second, time.Hour}, {100 * ms, 'S', time.Second, time.Hour}}, 0, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, start := t.TempDir(), time.Now()
			show(t, dir, "42", c.looks[0])
			d := watchDelays(dir, "42", start)
			var held time.Duration
			var stopped bool
			for _, l := range c.looks[1:] {
				show(t, dir, "42", l)
				held, _, stopped = d.Held(start.Add(l.at))
			}
			if held != c.held || stopped != c.stopped {
				t.Errorf("held %v, stopped %v; want %v, %v", held, stopped, c.held, c.stopped)
			}
		})
	}
}

// A worker may wait for any thread of its process, but only while it sleeps.
func TestAThreadThatIsKeptExcusesAWorkerThatSleeps(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		worker, other look
		held          time.Duration
	}{
		"sleeps":               {look{0, 'S', 0, 0}, look{0, 'S', ms, 90 * ms}, 90 * ms},
		"sleeps a while":       {look{0, 'S', 30 * ms, 20 * ms}, look{0, 'S', ms, 90 * ms}, 70 * ms},
		"computes without end": {look{0, 'R', 100 * ms, 0}, look{0, 'R', ms, 90 * ms}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir, start := t.TempDir(), time.Now()
			show(t, dir, "1", look{0, 'R', 0, 0})
			show(t, dir, "42", look{0, 'R', 0, 0})
			d := watchDelays(dir, "1", start)
			show(t, dir, "1", c.worker)
			show(t, dir, "42", c.other)
			if held, _, _ := d.Held(start.Add(100 * ms)); held != c.held {
				t.Errorf("held %v, want %v", held, c.held)
			}
		})
	}
}

// show writes a thread's files as the kernel would.
func show(t *testing.T, dir, thread string, l look) {
	t.Helper()
	task := filepath.Join(dir, "task", thread)
	if err := os.MkdirAll(task, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"stat":      fmt.Sprintf("%s (a name) with (signs) %c 1 42", thread, l.state),
		"schedstat": fmt.Sprintf("%d %d 17\n", l.ran, l.delay),
	} {
		if err := os.WriteFile(filepath.Join(task, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestThisProcessIsReadable(t *testing.T) {
	start := time.Now()
	d := WatchDelays(0, 0, start)
	if len(d.threads) == 0 {
		t.Skip("the kernel keeps no scheduling statistics")
	}
	if held, _, stopped := d.Held(start); held != 0 || stopped {
		t.Errorf("held %v, stopped %v at the start", held, stopped)
	}
}
