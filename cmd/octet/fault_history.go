package main

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/octet-run/octet/actors"
	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/coordinator"
	"github.com/octet-run/octet/faults/audit"
)

// history is what happened to the group during a run.
type history struct {
	mu     sync.Mutex
	begun  bool
	origin time.Time
	events []actors.Event
}

// begin forgets what happened before the faults.
func (h *history) begin(at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.begun, h.origin, h.events = true, at, nil
}

// add notes an event and says whether it is part of the run.
func (h *history) add(e actors.Event) bool {
	switch e.Kind {
	case actors.RankLoading, actors.RankOutput, actors.RankStarted, actors.RankReady:
		return false // of no interest to the report, and many
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.begun {
		h.events = append(h.events, e)
	}
	return h.begun
}

func (h *history) all() []actors.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]actors.Event(nil), h.events...)
}

// losses, and the times at which the group served and formed.
func (h *history) losses() (losses []audit.Loss, served, formed []time.Time) {
	for _, e := range h.all() {
		switch e.Kind {
		case actors.RankLost:
			losses = append(losses, audit.Loss{Time: e.Time, Epoch: e.Epoch, Rank: e.Rank, Why: e.Message})
		case actors.GroupServes:
			served = append(served, e.Time)
		case actors.GroupForms:
			formed = append(formed, e.Time)
		}
	}
	return losses, served, formed
}

// watchedGroup tells the audit of every answer that the coordinator takes.
type watchedGroup struct {
	coordinator.Group
	audit *audit.Audit
	last  uint32 // epoch
}

// Do runs a round. The coordinator runs one at a time.
func (g *watchedGroup) Do(ctx context.Context, r *round.Round) (*round.Result, error) {
	result, err := g.Group.Do(ctx, r)
	if err == nil {
		g.audit.Answer(g.last, r.Epoch, result.Epoch, r.Seq, result.Seq)
		g.last = r.Epoch
	}
	return result, err
}

// restSettle bounds the wait for what ends by itself after a run.
const restSettle = 2 * time.Second

// measureRest is what this process holds.
func measureRest() audit.Rest {
	return audit.Rest{
		Goroutines: runtime.NumGoroutine(), Files: openFiles(), Children: countChildren(), Shared: sharedFiles(),
	}
}

// settledRest waits until no more is left than before, for a bounded time.
func settledRest(before audit.Rest) audit.Rest {
	for deadline := time.Now().Add(restSettle); ; time.Sleep(10 * time.Millisecond) {
		rest := measureRest()
		if rest.Goroutines <= before.Goroutines && len(rest.Files) <= len(before.Files) && rest.Children <= before.Children || time.Now().After(deadline) {
			return rest
		}
	}
}

// openFiles are what this process has open.
func openFiles() (list []string) {
	names, _ := filepath.Glob("/proc/self/fd/*")
	for _, name := range names {
		if target, err := os.Readlink(name); err == nil {
			list = append(list, target)
		}
	}
	return list
}

func countEntries(dir string) int {
	entries, _ := os.ReadDir(dir)
	return len(entries)
}

// countChildren counts the child processes of all threads, zombies too.
func countChildren() int {
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	count := 0
	for _, path := range tasks {
		text, _ := os.ReadFile(path)
		count += len(strings.Fields(string(text)))
	}
	return count
}

// sharedFiles are the files in /dev/shm that could be ours.
func sharedFiles() map[string]bool {
	names := map[string]bool{}
	entries, _ := os.ReadDir("/dev/shm")
	for _, e := range entries {
		if strings.Contains(e.Name(), "octet") {
			names[e.Name()] = true
		}
	}
	return names
}

// levelOf is what a process holds, as far as the kernel tells.
func levelOf(pid int) audit.Level {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	mapped, _ := os.ReadFile(filepath.Join(proc, "maps"))
	return audit.Level{
		Bytes: residentBytes(pid), Files: countEntries(filepath.Join(proc, "fd")), Segments: strings.Count(string(mapped), "/memfd:octet-"),
	}
}

// residentBytes is a process's memory in use, 0 if the kernel does not tell.
func residentBytes(pid int) uint64 {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "statm"))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseUint(fields[1], 10, 64)
	return pages * uint64(os.Getpagesize())
}
