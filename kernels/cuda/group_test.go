//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/octet-run/octet/internal/shm"
)

// Rank processes for tests: the test binary started again, sharing one segment.

const (
	rankVar = "OCTET_CUDA_TEST_RANK" // "job rank ranks device host": set in rank processes only

	controlAt = 0
	barrierAt = 4096 // arrivals, one word a barrier
	wordsAt   = 8192 // words between parent and ranks
	handlesAt = 12288
	hostAt    = 16384

	maxBytes = 2 << 20
)

// job is what a rank process does once its exchange is connected.
type job func(m *member) error

var jobs = map[string]job{
	"verify": verifyJob, "bench": benchJob, "killed": killedJob, "oversubscribed": oversubscribedJob,
}

func TestMain(m *testing.M) {
	spec := os.Getenv(rankVar)
	if spec == "" {
		code := m.Run()
		if n := skipped.Load(); n > 0 {
			fmt.Printf("%d tests skipped: not enough CUDA devices\n", n)
		}
		os.Exit(code)
	}
	runtime.LockOSThread()
	if err := runRank(spec); err != nil {
		fmt.Fprintf(os.Stderr, "rank %q: %v\n", spec, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// member is a rank process's place in its group.
type member struct {
	rank, ranks int
	host        bool
	segment     *shm.Segment
	device      *Device
	exchange    *Exchange
	barriers    int
}

func runRank(spec string) error {
	var name string
	var device, host int
	m := &member{}
	if _, err := fmt.Sscan(spec, &name, &m.rank, &m.ranks, &device, &host); err != nil {
		return err
	}
	var err error
	if m.segment, err = shm.Open(os.NewFile(3, "segment")); err != nil {
		return err
	}
	if m.device, err = Open(device); err != nil {
		return err
	}
	m.host = host == 1
	if err := m.join(5*time.Second, 0); err != nil {
		return err
	}
	return errors.Join(jobs[name](m), m.leave())
}

// join makes this rank's exchange and connects it with the others'.
func (m *member) join(timeout time.Duration, firstOp uint32) error {
	c := ExchangeConfig{
		Rank: m.rank, Ranks: m.ranks, MaxBytes: maxBytes, Timeout: timeout, FirstOp: firstOp,
		Control: m.segment.Bytes()[controlAt:][:ControlBytes],
	}
	if m.host {
		c.Host = m.segment.Bytes()[hostAt:][:HostBytes(m.ranks, maxBytes)]
	}
	var err error
	if m.exchange, err = NewExchange(m.device, c); err != nil {
		return err
	}
	h, err := m.exchange.Handle()
	if err != nil {
		return err
	}
	handles := unsafe.Slice((*Handle)(unsafe.Pointer(&m.segment.Bytes()[handlesAt])), m.ranks)
	handles[m.rank] = h
	if err := m.barrier(); err != nil {
		return err
	}
	if err := m.exchange.Connect(handles); err != nil {
		return err
	}
	return m.barrier()
}

func (m *member) leave() error { return errors.Join(m.exchange.Close(), m.device.Close()) }

// barrier waits for all ranks, ten seconds at most.
func (m *member) barrier() error {
	word := m.word(barrierAt + 4*m.barriers)
	m.barriers = (m.barriers + 1) % 1024
	// The word of the last barrier but one is free again.
	m.word(barrierAt + 4*((m.barriers+512)%1024)).Store(0)
	word.Add(1)
	for deadline := time.Now().Add(20 * time.Second); word.Load() < uint32(m.ranks); {
		if time.Now().After(deadline) {
			return fmt.Errorf("rank %d: the others did not come to barrier %d", m.rank, m.barriers)
		}
		runtime.Gosched()
	}
	return nil
}

func (m *member) word(at int) *shm.Word { return m.segment.Word(at) }

// group is a test's handle on its rank processes.
type group struct {
	segment *shm.Segment
	ranks   []*exec.Cmd
	ended   []chan error // one result a process, then closed
	job     string
	devices int
	host    bool
}

func startGroup(t testing.TB, name string, ranks, devices int, host bool) *group {
	t.Helper()
	segment, err := shm.Create("octet-cuda-test", hostAt+HostBytes(ranks, maxBytes))
	if err != nil {
		t.Fatal(err)
	}
	g := &group{segment: segment, ranks: make([]*exec.Cmd, ranks), ended: make([]chan error, ranks), job: name, devices: devices, host: host}
	t.Cleanup(func() {
		for r := range g.ranks {
			g.kill(r)
		}
		if err := segment.Close(); err != nil {
			t.Error(err)
		}
	})
	for r := range ranks {
		g.start(t, r)
	}
	return g
}

func (g *group) start(t testing.TB, rank int) {
	t.Helper()
	host := 0
	if g.host {
		host = 1
	}
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), rankVar+"="+g.job+" "+strconv.Itoa(rank)+" "+strconv.Itoa(len(g.ranks))+" "+
		strconv.Itoa(rank%g.devices)+" "+strconv.Itoa(host))
	c.ExtraFiles = []*os.File{g.segment.File()}
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- c.Wait()
		close(ended)
	}()
	g.ranks[rank], g.ended[rank] = c, ended
}

// kill ends a rank, if it still runs, and returns when it is gone.
func (g *group) kill(rank int) {
	if g.ranks[rank] != nil {
		_ = g.ranks[rank].Process.Kill()
		<-g.ended[rank]
	}
}

func (g *group) control() []byte { return g.segment.Bytes()[controlAt:][:ControlBytes] }

// wait returns when all ranks have ended well.
func (g *group) wait(t testing.TB) {
	t.Helper()
	for r, ended := range g.ended {
		if err := <-ended; err != nil {
			t.Errorf("rank %d: %v; blames: %+v", r, err, Blames(g.control()))
		}
	}
}

// deviceRanks is how many devices the tests of a group use: more than two only where
// OCTET_CUDA_RANKS asks for them.
func deviceRanks() int { return fromEnvironment("OCTET_CUDA_RANKS", 2) }

func fromEnvironment(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 0 {
		return n
	}
	return otherwise
}

// skipped counts tests that found no device.
var skipped atomic.Int32

func needDevices(t testing.TB, n int) {
	t.Helper()
	if have := Count(); have < n {
		skipped.Add(1)
		t.Skipf("needs %d CUDA devices, this machine has %d", n, have)
	}
}
