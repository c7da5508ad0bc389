package testgroup

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Child is what a rank's process knows of its group.
type Child struct {
	Rank  int
	Size  int
	Args  []string
	Files []*os.File // as given to Start
}

// Role is the body of a rank's process. Its error is printed and makes it exit 1.
type Role func(Child) error

// How the test binary is told that it is a rank. The test binary alone reads them.
const (
	roleVariable = "OCTET_TESTGROUP_ROLE"
	rankVariable = "OCTET_TESTGROUP_RANK"
	argsVariable = "OCTET_TESTGROUP_ARGS"
)

// Main is the body of TestMain: it runs the tests, or a role if the process is a rank.
func Main(m *testing.M, roles map[string]Role) {
	name := os.Getenv(roleVariable)
	if name == "" {
		os.Exit(m.Run())
	}
	role := roles[name]
	if role == nil {
		fmt.Printf("no role %q in this test binary\n", name)
		os.Exit(2)
	}
	child, err := childFromEnvironment()
	if err == nil {
		err = role(child)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

func childFromEnvironment() (Child, error) {
	var c Child
	var files int
	if _, err := fmt.Sscanf(os.Getenv(rankVariable), "%d/%d/%d", &c.Rank, &c.Size, &files); err != nil {
		return c, fmt.Errorf("%s=%q: %w", rankVariable, os.Getenv(rankVariable), err)
	}
	if args := os.Getenv(argsVariable); args != "" {
		c.Args = strings.Split(args, "\n")
	}
	for i := range files {
		c.Files = append(c.Files, os.NewFile(uintptr(3+i), "inherited-"+strconv.Itoa(i)))
	}
	return c, nil
}

// Processes are the running ranks of one test.
type Processes struct {
	t     testing.TB
	ranks []*process
}

type process struct {
	cmd    *exec.Cmd
	output bytes.Buffer
	ended  chan struct{}
	err    error // valid once ended is closed
}

// Exit is how a rank's process ended.
type Exit struct {
	Err    error
	Output string
}

// Start runs role in ranks processes that inherit files.
func Start(t testing.TB, role string, ranks int, files []*os.File, args ...string) *Processes {
	t.Helper()
	g := &Processes{t: t}
	t.Cleanup(g.end)
	for rank := range ranks {
		p := &process{ended: make(chan struct{})}
		p.cmd = Command(context.Background(), role, rank, ranks, len(files), args...)
		p.cmd.ExtraFiles = files
		p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
		if err := p.cmd.Start(); err != nil {
			t.Fatalf("start rank %d: %v", rank, err)
		}
		go func() {
			p.err = p.cmd.Wait()
			close(p.ended)
		}()
		g.ranks = append(g.ranks, p)
	}
	return g
}

// Command is the process of one rank, not started, for code that starts ranks
// itself. It must be given the files as ExtraFiles.
func Command(ctx context.Context, role string, rank, ranks, files int, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(),
		roleVariable+"="+role,
		fmt.Sprintf("%s=%d/%d/%d", rankVariable, rank, ranks, files),
		argsVariable+"="+strings.Join(args, "\n"))
	return cmd
}

// Signal sends a signal to a rank's process.
func (g *Processes) Signal(rank int, s syscall.Signal) {
	g.t.Helper()
	if err := g.ranks[rank].cmd.Process.Signal(s); err != nil {
		g.t.Fatalf("signal %v to rank %d: %v", s, rank, err)
	}
}

// Ended is closed when a rank's process has ended.
func (g *Processes) Ended(rank int) <-chan struct{} { return g.ranks[rank].ended }

// Wait waits for the given ranks, or for all if none are given, and returns how
// each ended, in that order.
func (g *Processes) Wait(limit time.Duration, ranks ...int) []Exit {
	g.t.Helper()
	if len(ranks) == 0 {
		for r := range g.ranks {
			ranks = append(ranks, r)
		}
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	var exits []Exit
	for _, r := range ranks {
		p := g.ranks[r]
		select {
		case <-p.ended:
			exits = append(exits, Exit{Err: p.err, Output: p.output.String()})
		case <-timer.C:
			g.t.Fatalf("rank %d did not end within %v", r, limit)
		}
	}
	return exits
}

// end kills what still runs and waits for it.
func (g *Processes) end() {
	for _, p := range g.ranks {
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}
