package process

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// DeathPipeFD is the descriptor of the death pipe in the child. Config.Files
// follow it, in order.
const DeathPipeFD = 3

// Config says what to start and where.
type Config struct {
	// Name is what errors call the process.
	Name string
	// Argv is the program, by path, and its arguments.
	Argv []string
	// Env is the child's environment, nil for the parent's.
	Env []string
	// CPUs is the set the child may run on; empty: the parent's.
	CPUs []int
	// Bind, if set, runs on the thread that forks, just before it does: the
	// place for a memory policy.
	Bind func() error
	// Files become descriptors DeathPipeFD+1 onwards. They stay the caller's.
	Files []*os.File
	// Log, if set, gets every line the child writes to its stdout and stderr.
	// It runs on the goroutine that reads them.
	Log func(line string)
}

func (c *Config) validate() error {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return fmt.Errorf("start %s: no program given", c.Name)
	}
	for _, cpu := range c.CPUs {
		if cpu < 0 || cpu >= 64*len(unix.CPUSet{}) {
			return fmt.Errorf("start %s: there is no CPU %d", c.Name, cpu)
		}
	}
	return nil
}

// Child is a started process.
type Child struct {
	name  string
	proc  *os.Process
	start time.Time

	deathPipe *os.File // the parent's end, closed once the child is gone
	lines     *tail

	exited chan struct{}
	done   chan struct{}
	status error // set before exited closes, as code is
	code   int
}

// Start starts a process. On success the caller must see to it that the process
// ends, and wait for Done.
func Start(c Config) (*Child, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	child := &Child{
		name: c.Name, start: time.Now(),
		exited: make(chan struct{}), done: make(chan struct{}),
	}
	started := make(chan error)
	// A thread of its own, from before the child's birth until after its death: no other
	// goroutine inherits its CPU set.
	go onOwnThread(func() { child.live(c, started) })
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	return child, nil
}

// live is the child's thread.
func (c *Child) live(config Config, started chan<- error) {
	theirs, err := c.fork(config)
	for _, f := range theirs {
		_ = f.Close()
	}
	if err != nil {
		if c.deathPipe != nil {
			_ = c.deathPipe.Close()
		}
		if c.lines != nil {
			c.lines.close()
		}
		started <- err
		return
	}
	go c.lines.read(config.Log)
	started <- nil
	c.reap()
}

// fork makes the pipes and starts the process. It returns the ends that are the
// child's, to be closed here in any case.
func (c *Child) fork(config Config) (theirs []*os.File, err error) {
	deathRead, deathWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c.deathPipe = deathWrite
	theirs = append(theirs, deathRead)
	logRead, logWrite, err := os.Pipe()
	if err != nil {
		return theirs, err
	}
	c.lines = newTail(logRead)
	theirs = append(theirs, logWrite)
	null, err := os.Open(os.DevNull)
	if err != nil {
		return theirs, err
	}
	theirs = append(theirs, null)
	if err := bind(config); err != nil {
		return theirs, err
	}
	c.proc, err = os.StartProcess(config.Argv[0], config.Argv, &os.ProcAttr{
		Env:   config.Env,
		Files: append([]*os.File{null, logWrite, logWrite, deathRead}, config.Files...),
		Sys: &syscall.SysProcAttr{
			// A group of its own: the terminal's Ctrl-C is for the parent, which
			// then ends its children in order.
			Setpgid:   true,
			Pdeathsig: syscall.SIGKILL,
		},
	})
	return theirs, err
}

// bind sets what the child inherits from this thread.
func bind(config Config) error {
	if len(config.CPUs) > 0 {
		var set unix.CPUSet
		for _, cpu := range config.CPUs {
			set.Set(cpu)
		}
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			return fmt.Errorf("bind to CPUs %v: %w", config.CPUs, err)
		}
	}
	if err := setTimerSlack(lateTimers); err != nil {
		return err
	}
	if config.Bind == nil {
		return nil
	}
	return config.Bind()
}

// lastWords is how long the reader may go on after the child is gone: a
// grandchild may hold the pipe open.
const lastWords = 100 * time.Millisecond

func (c *Child) reap() {
	state, err := c.proc.Wait()
	switch {
	case err != nil:
		c.status, c.code = err, -1
	case !state.Success():
		c.status, c.code = errors.New(describe(state)), state.ExitCode()
	}
	close(c.exited)
	_ = c.deathPipe.Close()
	c.lines.finish(lastWords)
	close(c.done)
}

// describe says how a process ended.
func describe(state *os.ProcessState) string {
	status, ok := state.Sys().(syscall.WaitStatus)
	switch {
	case ok && status.Signaled() && status.CoreDump():
		return fmt.Sprintf("killed by %v (core dumped)", unix.SignalName(status.Signal()))
	case ok && status.Signaled():
		return fmt.Sprintf("killed by %v", unix.SignalName(status.Signal()))
	default:
		return fmt.Sprintf("exit status %d", state.ExitCode())
	}
}

// Name is what the Config called the process, PID its number.
func (c *Child) Name() string { return c.name }
func (c *Child) PID() int     { return c.proc.Pid }

// Exited closes when the process is gone and reaped.
func (c *Child) Exited() <-chan struct{} { return c.exited }

// Crashing closes when the process has begun to tell of its crash, as Go programs do
// before they end: their stacks, in thousands of writes, take long on a busy machine.
func (c *Child) Crashing() <-chan struct{} { return c.lines.crashing }

// Done closes when, beyond that, its output is read and nothing of it is left.
func (c *Child) Done() <-chan struct{} { return c.done }

// Signal sends a signal. It does nothing once the process is gone.
func (c *Child) Signal(sig os.Signal) {
	_ = c.proc.Signal(sig) // by pidfd: it never hits another process
}

// Kill ends the process as the kernel can; a stopped one too.
func (c *Child) Kill() { c.Signal(unix.SIGKILL) }

// Err is, after Done, nil for exit status 0 and an *ExitError otherwise.
func (c *Child) Err() error {
	<-c.done
	if c.status == nil {
		return nil
	}
	return &ExitError{Name: c.name, PID: c.PID(), Status: c.status.Error(), Code: c.code, Lines: c.lines.last()}
}
