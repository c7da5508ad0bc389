package topology

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The modes of set_mempolicy(2).
const (
	policyDefault   = 0
	policyPreferred = 1
)

// maxNodes is how many NUMA nodes a memory policy can name here.
const maxNodes = 64

// PreferMemory makes the calling thread, and every process that it forks, take
// memory from a NUMA node as long as it has any; node -1 makes that the default
// again. Call it on the locked thread that forks: late policies miss pages that
// were touched before.
func PreferMemory(node int) error {
	if node >= maxNodes {
		return fmt.Errorf("NUMA node %d: at most %d can be preferred", node, maxNodes-1)
	}
	mode, mask := uintptr(policyDefault), uint64(0)
	if node >= 0 {
		mode, mask = policyPreferred, 1<<node
	}
	// The mask's length counts one bit more than it has.
	_, _, errno := unix.Syscall(unix.SYS_SET_MEMPOLICY, mode, uintptr(unsafe.Pointer(&mask)), maxNodes+1)
	if errno == unix.ENOSYS && node <= 0 {
		return nil // a kernel without NUMA has one node
	}
	if errno != 0 {
		return fmt.Errorf("prefer memory of NUMA node %d: %w", node, errno)
	}
	return nil
}

// MemoryPolicy reads from /proc the policy of a process's memory, "default" or such
// as "prefer:0", as its first mapping has it. It is "" where the kernel has no NUMA.
func MemoryPolicy(pid int) (string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/numa_maps", pid))
	if os.IsNotExist(err) {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err != nil {
			return "", fmt.Errorf("process %d is gone", pid)
		}
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the memory policy of process %d: %w", pid, err)
	}
	line, _, _ := strings.Cut(string(data), "\n")
	fields := strings.Fields(line)
	if len(fields) < 2 {
		return "", nil // ended meanwhile, or a kernel thread
	}
	return fields[1], nil
}

// Bind binds the calling thread, which must be locked, and what it forks to the
// binding's processors and memory.
func (b Binding) Bind() error {
	var set unix.CPUSet
	for _, cpu := range b.CPUs {
		set.Set(cpu)
	}
	if len(b.CPUs) > 0 {
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			return fmt.Errorf("run on CPUs %s: %w", b.CPUs, err)
		}
	}
	return PreferMemory(b.Node)
}

// Check reports whether a process runs where it was bound to: an error says what
// it has instead.
func (b Binding) Check(pid int) error {
	cpus, _, err := Bound(pid)
	if err != nil {
		return err
	}
	if len(b.CPUs) > 0 && !slices.Equal(cpus, b.CPUs) {
		return fmt.Errorf("process %d may run on CPUs %s, it was bound to %s", pid, cpus, b.CPUs)
	}
	policy, err := MemoryPolicy(pid)
	if err != nil {
		return err
	}
	if want := fmt.Sprintf("prefer:%d", b.Node); b.Node >= 0 && policy != "" && policy != want &&
		policy != fmt.Sprintf("prefer=relative:%d", b.Node) {
		return fmt.Errorf("process %d has memory policy %s, want %s", pid, policy, want)
	}
	return nil
}
