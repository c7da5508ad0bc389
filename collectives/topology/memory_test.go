package topology

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

// A child that is forked on a thread with a preference has it from birth, and
// Check tells a binding that took from one that did not.
func TestChildrenInheritTheMemoryPolicy(t *testing.T) {
	if _, err := os.Stat("/proc/self/numa_maps"); err != nil {
		t.Skip("this kernel has no NUMA")
	}
	done := make(chan error)
	var child *exec.Cmd
	go func() {
		runtime.LockOSThread() // for good: the policy ends with the thread
		if err := PreferMemory(0); err != nil {
			done <- err
			return
		}
		child = exec.Command("sleep", "600")
		done <- child.Start()
		select {} // the child's parent thread must live; the process ends it
	}()
	if err := <-done; err != nil {
		t.Skipf("no memory policy may be set here: %v", err)
	}
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}()
	var policy string
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		var err error
		if policy, err = MemoryPolicy(child.Process.Pid); err != nil {
			t.Fatal(err)
		}
		if policy == "prefer:0" {
			break
		}
	}
	if policy != "prefer:0" {
		t.Fatalf("the child has memory policy %q", policy)
	}
	cpus, _, err := Bound(child.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := (Binding{Node: 0, CPUs: cpus}).Check(child.Process.Pid); err != nil {
		t.Error(err)
	}
	if err := (Binding{Node: 1, CPUs: cpus}).Check(child.Process.Pid); err == nil || !strings.Contains(err.Error(), "prefer:0") {
		t.Errorf("a binding to node 1 passes: %v", err)
	}
	if err := (Binding{Node: -1, CPUs: CPUs{4095}}).Check(child.Process.Pid); err == nil || !strings.Contains(err.Error(), "bound to 4095") {
		t.Errorf("a binding to CPU 4095 passes: %v", err)
	}
}

func TestMemoryOfAProcessThatIsGone(t *testing.T) {
	if _, err := MemoryPolicy(1 << 30); err == nil {
		t.Error("there is no such process")
	}
	if err := (Binding{Node: -1}).Check(1 << 30); err == nil {
		t.Error("there is no such process")
	}
}
