package process

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// roleVariable makes the test binary play a part in its own tests.
const roleVariable = "OCTET_TEST_PROCESS_ROLE"

// limit is how long anything may take on a machine that is busy with other things.
const limit = 2 * time.Minute

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "":
		goleak.VerifyTestMain(m)
	case "crash":
		guardOrExit()
		fmt.Fprintln(os.Stderr, "about to crash")
		panic("the device fell off the bus")
	case "fail":
		guardOrExit()
		fmt.Fprintln(os.Stderr, "cannot open model.safetensors")
		os.Exit(3)
	case "cpus":
		guardOrExit()
		var set unix.CPUSet
		_ = unix.SchedGetaffinity(0, &set)
		fmt.Println("cpus", set.Count(), set.IsSet(0), runtime.NumCPU())
	case "timers":
		guardOrExit()
		runtime.LockOSThread()
		late := timerSlack()
		if err := PromptTimers(); err != nil {
			fmt.Println(err)
		}
		fmt.Println("slack", late, "then", timerSlack())
	case "sleep":
		fmt.Println("sleeping", guardOrExit())
		time.Sleep(time.Hour)
	case "spin": // what a long kernel looks like: no thread to spare
		guardOrExit()
		runtime.GOMAXPROCS(1)
		fmt.Println("spinning")
		for {
			spin()
		}
	case "parent":
		beParent()
	}
}

//go:noinline
func spin() {
	for i := 0; i < 1<<30; i++ {
	}
}

func guardOrExit() (thread int) {
	pipe, err := Inherited(DeathPipeFD, "death pipe")
	if err == nil {
		thread, err = Guard(pipe)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return thread
}

// beParent starts three children that hold descriptor 3, and waits to be killed.
func beParent() {
	held := os.NewFile(3, "held")
	for i := range 3 {
		c := role([]string{"sleep", "spin", "sleep"}[i])
		c.Files = []*os.File{held}
		if _, err := Start(c); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	fmt.Println("started")
	time.Sleep(time.Hour)
}

func role(name string) Config {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return Config{Name: "the " + name + " child", Argv: []string{exe}, Env: append(os.Environ(), roleVariable+"="+name)}
}

func waitDone(t *testing.T, c *Child) {
	t.Helper()
	select {
	case <-c.Done():
	case <-time.After(limit):
		t.Fatalf("%s is not done", c.Name())
	}
}

func TestAnEndIsToldWithItsReason(t *testing.T) {
	for _, c := range []struct{ role, status, line string }{
		{"crash", "exit status 2", "panic: the device fell off the bus"},
		{"fail", "exit status 3", "cannot open model.safetensors"},
	} {
		child, err := Start(role(c.role))
		if err != nil {
			t.Fatal(err)
		}
		waitDone(t, child)
		var exit *ExitError
		if err := child.Err(); !errors.As(err, &exit) || exit.Status != c.status || exit.Telling() != c.line {
			t.Errorf("%s: error %v, want %q and %q", c.role, err, c.status, c.line)
		}
		crashing := false
		select {
		case <-child.Crashing():
			crashing = true
		default:
		}
		if crashing != (c.role == "crash") {
			t.Errorf("%s: told of a crash: %v", c.role, crashing)
		}
	}
}

func TestAStoppedChildIsKilledAndReaped(t *testing.T) {
	child, err := Start(role("sleep"))
	if err != nil {
		t.Fatal(err)
	}
	child.Signal(unix.SIGSTOP)
	time.Sleep(20 * time.Millisecond)
	child.Kill()
	waitDone(t, child)
	if err := child.Err(); err == nil || !strings.Contains(err.Error(), "killed by SIGKILL") {
		t.Fatalf("error is %v, want killed by SIGKILL", err)
	}
	child.Kill() // nobody: harmless
}

func TestTheChildIsBoundFromBirth(t *testing.T) {
	var mu sync.Mutex
	var lines []string
	c := role("cpus")
	c.CPUs = []int{0}
	bound := false
	c.Bind = func() error { bound = true; return nil }
	c.Log = func(line string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, line)
	}
	child, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	waitDone(t, child)
	if err := child.Err(); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Contains(lines, "cpus 1 true 1") || !bound {
		t.Fatalf("child says %q, bind hook ran: %v", lines, bound)
	}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(os.Getpid(), &set); err != nil || set.Count() != runtime.NumCPU() {
		t.Fatalf("the parent has %d CPUs left of %d, %v", set.Count(), runtime.NumCPU(), err)
	}
}

func TestTheTimersOfAChildAreLateUntilAThreadWantsThemPrompt(t *testing.T) {
	lines := make(chan string, 16)
	c := role("timers")
	c.Log = func(line string) { lines <- line }
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := timerSlack()
	child, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	waitDone(t, child)
	close(lines)
	for line := range lines {
		if line == "slack 1ms then 50µs" {
			if after := timerSlack(); after != before {
				t.Fatalf("the parent's timers had a slack of %v before and %v after", before, after)
			}
			return
		}
		t.Log("child says ", line)
	}
	t.Fatal("the child did not say that its slack was 1 ms from birth and then 50 us")
}

// timerSlack is the calling thread's.
func timerSlack() time.Duration {
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return -1
	}
	return time.Duration(slack)
}

func TestAFailedStartLeavesNothing(t *testing.T) {
	before := openFiles(t)
	for name, c := range map[string]Config{
		"no program":      {Name: "x"},
		"missing program": {Name: "x", Argv: []string{"/nonexistent/octet"}},
		"no such CPU":     {Name: "x", Argv: []string{"/bin/true"}, CPUs: []int{1000}},
		"failing hook":    {Name: "x", Argv: []string{"/bin/true"}, Bind: func() error { return errors.New("no such node") }},
	} {
		if _, err := Start(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for deadline := time.Now().Add(limit); openFiles(t) > before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d files open, %d before", openFiles(t), before)
		}
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// The children hold the write end of a pipe: its end of file is their end, with
// no process number to be mistaken about.
func TestChildrenVanishWithAKilledParent(t *testing.T) {
	for i := range 6 {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		parent := exec.Command(os.Args[0])
		parent.Env = append(os.Environ(), roleVariable+"=parent")
		parent.ExtraFiles = []*os.File{write}
		stdout, err := parent.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := parent.Start(); err != nil {
			t.Fatal(err)
		}
		_ = write.Close()
		if i%2 == 0 { // every other time at a random moment of the start
			_, _ = io.ReadFull(stdout, make([]byte, len("started\n")))
			time.Sleep(50 * time.Millisecond)
		} else {
			time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond) // any moment will do
		}
		_ = parent.Process.Kill()
		_ = parent.Wait()
		if err := read.SetReadDeadline(time.Now().Add(limit)); err != nil {
			t.Fatal(err)
		}
		if _, err := read.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Fatalf("run %d: children are left long after their parent: %v", i, err)
		}
		_ = read.Close()
	}
}

// The death pipe alone, without the parent-death signal, ends a child whose only
// processor is busy.
func TestTheDeathPipeAloneEndsABusyChild(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), roleVariable+"=spin")
	child.ExtraFiles = []*os.File{read}
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	_ = read.Close()
	_, _ = io.ReadFull(stdout, make([]byte, len("spinning\n")))
	_ = write.Close()
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	select {
	case <-ended:
	case <-time.After(limit):
		_ = child.Process.Kill()
		<-ended
		t.Fatal("the child lives on")
	}
}

func TestAChildSeesItsFilesInOrder(t *testing.T) {
	dir := t.TempDir()
	var files []*os.File
	for i := range 3 {
		f, err := os.Create(dir + "/" + strconv.Itoa(i))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append(files, f)
	}
	child, err := Start(Config{Name: "sh", Argv: []string{"/bin/sh", "-c", "echo a >&4; echo b >&5; echo c >&6"}, Files: files})
	if err != nil {
		t.Fatal(err)
	}
	waitDone(t, child)
	if err := child.Err(); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"a\n", "b\n", "c\n"} {
		if got, err := os.ReadFile(files[i].Name()); err != nil || string(got) != want {
			t.Errorf("file %d has %q, %v, want %q", i, got, err, want)
		}
	}
}
