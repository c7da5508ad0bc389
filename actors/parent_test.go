package actors

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/octet-run/octet/internal/shm"
)

// beParent runs a group, with rounds, until it is killed. Descriptor 3 is in the
// hands of all its ranks.
func beParent() {
	ranks, _ := strconv.Atoi(os.Getenv(parentVariable))
	g, err := StartGroup(context.Background(), Config{
		Ranks: ranks, Launcher: processes(), Stall: limit,
		Segments: func(uint32) (map[string]*shm.Segment, error) {
			// A pipe is no segment, but as good a descriptor to inherit: see holdPipe.
			s, err := shm.Create("octet-test", 4096)
			return map[string]*shm.Segment{"slabs": s}, err
		},
	})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("started")
	for {
		if _, err := g.Do(context.Background(), decode(1)); err != nil {
			os.Exit(1)
		}
	}
}

// A supervisor is killed at random moments: while starting, loading, in rounds.
// Its ranks' stderr is a pipe to it, so what tells that they are gone is the
// process group: they are found by the file they all have open.
func TestRanksVanishWithAKilledSupervisor(t *testing.T) {
	for i := range 8 {
		dir := t.TempDir()
		parent := exec.Command(os.Args[0])
		parent.Env = append(os.Environ(), parentVariable+"=4")
		parent.Dir = dir // inherited by the ranks: what they are found by
		stdout, err := parent.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := parent.Start(); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			_, _ = io.ReadFull(stdout, make([]byte, len("started\n")))
		}
		time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
		_ = parent.Process.Kill()
		_ = parent.Wait()
		if !waitFor(func() bool { return len(livingIn(t, dir)) == 0 }) {
			t.Fatalf("run %d: processes %v are left long after their supervisor", i, livingIn(t, dir))
		}
	}
}

// livingIn lists the processes whose working directory is dir.
func livingIn(t *testing.T, dir string) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if at, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err == nil && at == dir {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Negative control: the search does find a process.
func TestTheSearchForLeftoversFindsOne(t *testing.T) {
	dir := t.TempDir()
	c := exec.Command("sleep", "60")
	c.Dir = dir
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if left := livingIn(t, dir); len(left) != 1 || left[0] != c.Process.Pid {
		t.Errorf("found %v, want %d", left, c.Process.Pid)
	}
	_ = c.Process.Signal(unix.SIGKILL)
	var exit *exec.ExitError
	if err := c.Wait(); !errors.As(err, &exit) {
		t.Errorf("wait: %v", err)
	}
}
