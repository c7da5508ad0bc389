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
			show(t, dir, c.looks[0])
			d := watchDelays(dir, "42", start)
			var held time.Duration
			var stopped bool
			for _, l := range c.looks[1:] {
				show(t, dir, l)
				held, _, stopped = d.Held(start.Add(l.at))
			}
			if held != c.held || stopped != c.stopped {
				t.Errorf("held %v, stopped %v; want %v, %v", held, stopped, c.held, c.stopped)
			}
		})
	}
}

// Whichever thread was kept from running, the process was.
func TestAThreadOnWhichTheWorkerWaitsIsHeldToo(t *testing.T) {
	const ms = time.Millisecond
	dir, start := t.TempDir(), time.Now()
	show(t, dir, look{0, 'R', 0, 0})
	d := watchDelays(dir, "1", start) // the worker sleeps elsewhere
	show(t, dir, look{100 * ms, 'S', ms, 90 * ms})
	if held, turns, _ := d.Held(start.Add(100 * ms)); held != 90*ms || turns != 0 {
		t.Errorf("held %v in %d turns of the worker, want 90 ms in none", held, turns)
	}
}

// show writes a thread's files as the kernel would.
func show(t *testing.T, dir string, l look) {
	t.Helper()
	task := filepath.Join(dir, "task", "42")
	if err := os.MkdirAll(task, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"stat":      fmt.Sprintf("42 (a name) with (signs) %c 1 42", l.state),
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
