package actors

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/octet-run/octet/actors/process"
	"github.com/octet-run/octet/internal/shm"
)

// Launcher starts rank processes.
type Launcher interface {
	Launch(Launch) (RankProcess, error)
}

// Launch says what to start.
type Launch struct {
	Rank int
	// Spec is the text that the process gives to Inherit.
	Spec string
	// Files become descriptors from process.DeathPipeFD+1 on. They stay the caller's.
	Files []*os.File
	CPUs  []int
	Bind  func() error
	// Log gets every line that the process writes.
	Log func(line string)

	handoff handoff
}

// RankProcess is a started rank. *process.Child is one.
type RankProcess interface {
	PID() int
	// Crashing closes when the process begins to tell why it will end; never, for most.
	// Exited closes when it is gone, Done when nothing of it is left.
	Crashing() <-chan struct{}
	Exited() <-chan struct{}
	Done() <-chan struct{}
	// Err is how it ended, nil for success. It waits for Done.
	Err() error
	Kill()
	Signal(os.Signal)
}

// Processes launches operating-system processes.
type Processes struct {
	// Command is the program, by path, and its arguments for a rank; spec must
	// reach Inherit there.
	Command func(rank int, spec string) []string
	// Env is the environment, nil for this process's.
	Env []string
}

// Launch starts one.
func (p Processes) Launch(l Launch) (RankProcess, error) {
	child, err := process.Start(process.Config{
		Name: fmt.Sprintf("rank %d", l.Rank), Argv: p.Command(l.Rank, l.Spec), Env: p.Env,
		CPUs: l.CPUs, Bind: l.Bind, Files: l.Files, Log: l.Log,
	})
	if err != nil {
		return nil, err // not child: a nil *Child is no nil RankProcess
	}
	return child, nil
}

// InProcess runs ranks as goroutines of this process, for tests: same memory
// layout, same messages, no isolation. A rank that ignores its context cannot be
// killed.
type InProcess struct {
	Engine func(*Inherited) (Engine, error)
	Log    *zap.Logger
}

// Launch starts one.
func (p InProcess) Launch(l Launch) (RankProcess, error) {
	files := map[string]*os.File{}
	for i, name := range segmentOrder(l.handoff) {
		fd, err := unix.FcntlInt(l.Files[i].Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("rank %d: duplicate %q: %w", l.Rank, name, err)
		}
		files[name] = os.NewFile(uintptr(fd), name)
	}
	in, err := adopt(l.handoff, files, 0)
	if err != nil {
		return nil, err
	}
	in.shared, in.seat.Shared = true, true
	ctx, cancel := context.WithCancel(context.Background())
	r := &goroutineRank{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		defer cancel()
		r.err = p.run(ctx, in)
		in.Close()
	}()
	return r, nil
}

func (p InProcess) run(ctx context.Context, in *Inherited) error {
	engine, err := p.Engine(in)
	if err != nil {
		return err
	}
	return RunRank(ctx, in, engine, p.Log)
}

// goroutineRank is a rank that is no process.
type goroutineRank struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// PID is 0: there is no process.
func (r *goroutineRank) PID() int { return 0 }

// Crashing never closes: a crash would be this process's.
func (r *goroutineRank) Crashing() <-chan struct{} { return nil }

// Exited and Done are the same moment here.
func (r *goroutineRank) Exited() <-chan struct{} { return r.done }

// Done closes when RunRank has returned.
func (r *goroutineRank) Done() <-chan struct{} { return r.done }

// Err is what RunRank returned.
func (r *goroutineRank) Err() error {
	<-r.done
	if ExitCode(r.err) == 0 {
		return nil
	}
	return r.err
}

// Kill cancels the rank's context.
func (r *goroutineRank) Kill() { r.cancel() }

// Signal knows SIGKILL only.
func (r *goroutineRank) Signal(sig os.Signal) {
	if sig == unix.SIGKILL {
		r.Kill()
	}
}

// segmentOrder is the order in which a handoff's names become files.
func segmentOrder(h handoff) []string {
	return slices.SortedFunc(maps.Keys(h.fds), func(a, b string) int { return cmp.Compare(h.fds[a], h.fds[b]) })
}

// withSegments is h with numbers for the descriptors of the segments, whose files it
// lists.
func (h handoff) withSegments(segments map[string]*shm.Segment) (handoff, []*os.File) {
	h.fds = map[string]int{}
	var files []*os.File
	for i, name := range slices.Sorted(maps.Keys(segments)) {
		h.fds[name] = process.DeathPipeFD + 1 + i
		files = append(files, segments[name].File())
	}
	return h, files
}
