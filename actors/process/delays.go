package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Delays measures for how long a process was kept from running: a thread of it was
// runnable while others had the processors, or waited for a disk. It need not be
// the one that does the work, which may wait for it: the collector's stop is in one
// thread's hands and then in another's. A process that makes no progress for that
// reason is not at fault; one that sleeps, is stopped or computes without end is.
type Delays struct {
	dir     string
	worker  string // the thread that does the work
	begun   time.Time
	threads map[string]*delayed
}

// delayed is one thread: its counters, and since when they have stood still while
// it was runnable or in uninterruptible sleep.
type delayed struct {
	base, delay time.Duration // waits for a processor, as far as they are over
	begun       uint64        // turns on a processor before the watch
	before, ran time.Duration // on a processor, before the watch and until now
	still       time.Time
	disk        time.Duration
	looked      time.Time
}

// WatchDelays starts to measure a process, of which the thread worker does the
// work; pid 0 is this process.
func WatchDelays(pid, worker int, now time.Time) *Delays {
	name := "self"
	if pid > 0 {
		name = strconv.Itoa(pid)
	}
	return watchDelays(filepath.Join("/proc", name), strconv.Itoa(worker), now)
}

func watchDelays(dir, worker string, now time.Time) *Delays {
	d := &Delays{dir: dir, worker: worker, begun: now, threads: map[string]*delayed{}}
	d.Held(now)
	return d
}

// Held is for how long the process was kept from running since the watch began,
// turns how often the worker has had a processor since then. stopped says that the
// process is stopped by a signal. A process that cannot be read was not kept.
func (d *Delays) Held(now time.Time) (held time.Duration, turns uint64, stopped bool) {
	entries, err := os.ReadDir(filepath.Join(d.dir, "task"))
	if err != nil {
		return 0, 0, false
	}
	var own, others, ran time.Duration // ran: the worker
	for _, entry := range entries {
		state, soFar, delay, count, err := readThread(filepath.Join(d.dir, "task", entry.Name()))
		if err != nil {
			continue // the thread has ended
		}
		if state == 'T' || state == 't' {
			return 0, 0, true
		}
		t := d.threads[entry.Name()]
		if t == nil {
			t = &delayed{base: delay, delay: delay, before: soFar, ran: soFar, begun: count, looked: now}
			d.threads[entry.Name()] = t
		}
		past, present := t.held(state, soFar, delay, now)
		if entry.Name() == d.worker {
			own, ran, turns = past+present, soFar-t.before, count-t.begun
		} else {
			others = max(others, past+present)
		}
	}
	elapsed := now.Sub(d.begun)
	// It waits for other threads only while it sleeps.
	asleep := max(elapsed-own-ran, 0)
	return min(own+min(others, asleep), elapsed), turns, false
}

// held takes the thread's present counters and returns its waits that are over and
// the one under way. A wait for a processor is counted by the kernel only when it
// is over; until then it shows as a runnable thread whose counters stand still.
func (t *delayed) held(state byte, ran, delay time.Duration, now time.Time) (past, present time.Duration) {
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
	if !t.still.IsZero() {
		present = now.Sub(t.still)
	}
	return delay - t.base + t.disk, present
}

// readThread reads a thread's state, how long it has run and waited for a
// processor, and how often it had one.
func readThread(dir string) (state byte, ran, delay time.Duration, turns uint64, err error) {
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return 0, 0, 0, 0, err
	}
	if state = stateIn(stat); state == 0 {
		return 0, 0, 0, 0, fmt.Errorf("%s/stat holds no state", dir)
	}
	text, err := os.ReadFile(filepath.Join(dir, "schedstat"))
	if err != nil {
		return 0, 0, 0, 0, err
	}
	_, err = fmt.Sscan(string(text), &ran, &delay, &turns)
	return state, ran, delay, turns, err
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
