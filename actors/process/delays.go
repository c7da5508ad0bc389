package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Delays measures for how long a process was kept from running: its threads were
// runnable while others had the processors, or waited for a disk. A process that
// makes no progress for that reason is not at fault; one that sleeps, is stopped
// or computes without end is.
type Delays struct {
	dir     string
	begun   time.Time
	threads map[string]*delayed
}

// delayed is one thread: its counters, and since when they have stood still while
// it was runnable or in uninterruptible sleep.
type delayed struct {
	base, delay time.Duration // waits for a processor, as far as they are over
	ran         time.Duration
	still       time.Time
	disk        time.Duration
	looked      time.Time
}

// WatchDelays starts to measure a process; pid 0 is this one.
func WatchDelays(pid int, now time.Time) *Delays {
	name := "self"
	if pid > 0 {
		name = strconv.Itoa(pid)
	}
	return watchDelays(filepath.Join("/proc", name), now)
}

func watchDelays(dir string, now time.Time) *Delays {
	d := &Delays{dir: dir, begun: now, threads: map[string]*delayed{}}
	d.Held(now)
	return d
}

// Held is the longest that any thread was kept from running since the watch
// began. stopped says that the process is stopped by a signal. A process that
// cannot be read was not kept.
func (d *Delays) Held(now time.Time) (held time.Duration, stopped bool) {
	entries, err := os.ReadDir(filepath.Join(d.dir, "task"))
	if err != nil {
		return 0, false
	}
	for _, entry := range entries {
		state, ran, delay, err := readThread(filepath.Join(d.dir, "task", entry.Name()))
		if err != nil {
			continue // the thread has ended
		}
		if state == 'T' || state == 't' {
			return 0, true
		}
		t := d.threads[entry.Name()]
		if t == nil {
			t = &delayed{base: delay, delay: delay, ran: ran, looked: now}
			d.threads[entry.Name()] = t
		}
		held = max(held, t.held(state, ran, delay, now))
	}
	return min(held, now.Sub(d.begun)), false
}

// held takes the thread's present counters. A wait for a processor is counted by
// the kernel only when it is over; until then it shows as a runnable thread whose
// counters stand still.
func (t *delayed) held(state byte, ran, delay time.Duration, now time.Time) time.Duration {
	if state != 'R' || ran != t.ran || delay != t.delay {
		t.still = time.Time{}
	}
	if state == 'R' && t.still.IsZero() {
		t.still = now
	}
	if state == 'D' {
		t.disk += now.Sub(t.looked)
	}
	t.ran, t.delay, t.looked = ran, delay, now
	held := delay - t.base + t.disk
	if !t.still.IsZero() {
		held += now.Sub(t.still)
	}
	return held
}

// readThread reads a thread's state, and how long it has run and waited for a
// processor.
func readThread(dir string) (state byte, ran, delay time.Duration, err error) {
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return 0, 0, 0, err
	}
	if state = stateIn(stat); state == 0 {
		return 0, 0, 0, fmt.Errorf("%s/stat holds no state", dir)
	}
	text, err := os.ReadFile(filepath.Join(dir, "schedstat"))
	if err != nil {
		return 0, 0, 0, err
	}
	_, err = fmt.Sscan(string(text), &ran, &delay)
	return state, ran, delay, err
}

// stateIn finds the state in "pid (name) state ...", where the name may hold
// anything; 0 if there is none.
func stateIn(stat []byte) byte {
	_, after, ok := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	if !ok || len(after) == 0 {
		return 0
	}
	return after[0]
}

// Stopped reports whether a process is stopped by a signal.
func Stopped(pid int) bool {
	if pid <= 0 {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	state := stateIn(stat)
	return state == 'T' || state == 't'
}
