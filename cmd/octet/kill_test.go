package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// kills is how many random moments the program is ended at.
func kills(t *testing.T) int {
	if os.Getenv("OCTET_TEST_FULL") != "" {
		return 50
	}
	if testing.Short() {
		return 3
	}
	return 12
}

// patience is how long what was left may take to go: the promised 2 s where the
// full matrix runs on a machine of its own, more where the tests share it.
func patience() time.Duration {
	if os.Getenv("OCTET_TEST_FULL") != "" {
		return 2 * time.Second
	}
	return limit
}

func TestNothingIsLeftWhenTheProgramIsEndedAtAnyMoment(t *testing.T) {
	const mark = "OCTET_TEST_MARK"
	signals := []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}
	random := rand.New(rand.NewPCG(7, 7))
	for i := range kills(t) {
		sig, after := signals[i%len(signals)], time.Duration(random.IntN(1500))*time.Millisecond
		value := fmt.Sprintf("%d-%d", os.Getpid(), i)
		cmd := program(t.Context(), "generate", "--ranks", "8", "--max-tokens", "0", "--ignore-eos", "func main(")
		cmd.Env = append(cmd.Env, mark+"="+value)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(after)
		_ = cmd.Process.Signal(sig)
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(limit):
			_ = cmd.Process.Kill()
			t.Fatalf("%v after %v: the program did not end", sig, after)
		}
		if left := waitForNone(mark+"="+value, patience()); len(left) > 0 {
			t.Errorf("%v after %v: processes %v are left", sig, after, left)
		}
		if code := cmd.ProcessState.ExitCode(); sig != syscall.SIGKILL && code != exitInterrupted && code != -1 && code != exitOK {
			t.Errorf("%v after %v: exit code %d", sig, after, code)
		}
	}
	if files, _ := filepath.Glob("/dev/shm/*octet*"); len(files) > 0 {
		t.Errorf("shared memory is left: %v", files)
	}
}

func TestTheRanksOfAMeasurementEndWithIt(t *testing.T) {
	variable := fmt.Sprintf("OCTET_TEST_MARK=measurement-%d", os.Getpid())
	cmd := program(t.Context(), "bench", "allreduce", "--ranks", "2", "--sizes", "4", "--algorithms", "central", "--iterations", "1000000000")
	cmd.Env = append(cmd.Env, variable)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(limit); len(processesWith(variable)) < 3; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("processes are %v, want the command and two ranks", processesWith(variable))
			break
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	for _, pid := range waitForNone(variable, patience()) {
		t.Errorf("rank process %d is left", pid)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// waitForNone waits until no process has the variable in its environment, and
// returns those that still do.
func waitForNone(variable string, limit time.Duration) []int {
	deadline := time.Now().Add(limit)
	for {
		left := processesWith(variable)
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func processesWith(variable string) []int {
	paths, _ := filepath.Glob("/proc/[0-9]*/environ")
	var found []int
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for _, entry := range strings.Split(string(data), "\x00") {
			if entry == variable {
				pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
				found = append(found, pid)
			}
		}
	}
	return found
}

func TestTheProcessSearchFindsOneThatIsThere(t *testing.T) {
	const variable = "OCTET_TEST_MARK=control"
	cmd := program(t.Context(), "tokenize", "--file", "-")
	cmd.Env = append(cmd.Env, variable)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(limit)
	for len(processesWith(variable)) == 0 {
		if time.Now().After(deadline) {
			t.Fatal("a running process was not found")
		}
		time.Sleep(10 * time.Millisecond)
	}
	_ = stdin.Close()
	_ = cmd.Wait()
}
