package collectives

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/octet-run/octet/collectives/transport"
	"github.com/octet-run/octet/internal/shm"
	"github.com/octet-run/octet/internal/testgroup"
)

// moment is where in an operation a rank comes to harm.
type moment string

const (
	beforePost  moment = "before post"
	afterPost   moment = "after post"
	inScatter   moment = "in scatter"
	inExchange  moment = "in exchange"
	inGather    moment = "in gather"
	whileReduce moment = "while it reduces"
)

// harm is what befalls a rank's process.
type harm struct {
	Algorithm string
	Moment    moment
	Victim    int
	Blow      syscall.Signal
}

// harmOp is the first operation in which harm may come.
const harmOp = 5

// harmedLink sends its own process a signal at the moment.
type harmedLink struct {
	*transport.SharedMemory
	harm
}

func (l harmedLink) at(m moment, op uint32) {
	if op >= harmOp && m == l.Moment && l.Rank() == l.Victim {
		_ = syscall.Kill(os.Getpid(), l.Blow)
		time.Sleep(time.Minute) // until the signal has struck every thread
	}
}

func (l harmedLink) Post(op uint32, d transport.Descriptor) {
	l.at(beforePost, op)
	l.SharedMemory.Post(op, d)
	l.at(afterPost, op)
}

func (l harmedLink) Await(from, tag int, op uint32, phase transport.Phase) error {
	l.at(map[transport.Phase]moment{transport.Scatter: inScatter, transport.Exchange: inExchange, transport.Gather: inGather}[phase], op)
	return l.SharedMemory.Await(from, tag, op, phase)
}

// Arrive makes the victim the last to arrive, so that it is the one that reduces.
func (l harmedLink) Arrive(op uint32) bool {
	if op >= harmOp && l.Moment == whileReduce && l.Rank() == l.Victim {
		time.Sleep(20 * time.Millisecond)
	}
	return l.SharedMemory.Arrive(op)
}

func (l harmedLink) Claim(op uint32, chunks int) (int, bool) {
	chunk, ok := l.SharedMemory.Claim(op, chunks)
	if ok {
		l.at(whileReduce, op)
	}
	return chunk, ok
}

// verdictOfRank is what a surviving rank reports: whom its error names, and when.
type verdictOfRank struct {
	Rank   int
	Reason string
	At     int64 // CLOCK_MONOTONIC, nanoseconds
	Error  string
}

func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

const stopDeadline = time.Second

// harmRole reduces until an operation fails, and reports the failure.
func harmRole(child testgroup.Child) error {
	var h harm
	if err := json.Unmarshal([]byte(child.Args[0]), &h); err != nil {
		return err
	}
	g, err := transport.Open(child.Files[0])
	if err != nil {
		return err
	}
	m, err := g.Attach(child.Rank, transport.Polling{Timeout: limit})
	if err != nil {
		return err
	}
	shape := Shape{Ranks: child.Size, Islands: []int{2, 2}, Coherent: true}
	c, err := New(harmedLink{m, h}, Config{Plan: planOf(h.Algorithm, shape)})
	if err != nil {
		return err
	}
	if err := c.Barrier(); err != nil { // the processes do not start at once
		return err
	}
	if h.Blow == syscall.SIGSTOP {
		m.SetTimeout(stopDeadline)
	}
	for err == nil {
		_, err = c.AllReduce(make([]float32, 1024), 1, 1024)
	}
	report := verdictOfRank{Rank: -1, At: monotonic(), Error: err.Error()}
	var timeout *transport.TimeoutError
	var abort *shm.AbortError
	switch {
	case errors.As(err, &timeout):
		report.Rank, report.Reason = timeout.Rank, shm.TimedOut.String()
	case errors.As(err, &abort):
		report.Rank, report.Reason = abort.Rank, abort.Reason.String()
	}
	return json.NewEncoder(os.Stdout).Encode(report)
}

func harms() []harm {
	var out []harm
	for algorithm, moments := range map[string][]moment{
		"central":         {beforePost, afterPost, whileReduce},
		"one-shot":        {beforePost},
		"shared two-shot": {afterPost, inGather},
		"two-shot":        {inScatter},
		"hierarchical":    {inScatter, inExchange, inGather},
	} {
		for _, m := range moments {
			for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
				out = append(out, harm{algorithm, m, 2, s})
			}
		}
	}
	return out
}

// TestADeadOrStoppedRankIsNamedByAllOthers harms a rank in every phase. A dead one
// is noticed by its parent, which aborts the group; a stopped one by the deadline.
func TestADeadOrStoppedRankIsNamedByAllOthers(t *testing.T) {
	for _, h := range harms() {
		t.Run(fmt.Sprintf("%s/%s/%v", h.Algorithm, h.Moment, h.Blow), func(t *testing.T) {
			g := newGroup(t, transport.Config{Ranks: 4, MaxRows: 1, MaxWidth: 1024})
			arg, err := json.Marshal(h)
			if err != nil {
				t.Fatal(err)
			}
			procs := testgroup.Start(t, "harm", 4, []*os.File{g.File()}, string(arg))
			want := shm.TimedOut
			var struck int64
			if h.Blow == syscall.SIGKILL {
				<-procs.Ended(h.Victim)
				struck, want = monotonic(), shm.Died
				g.Abort(h.Victim, shm.Died)
			}
			for _, exit := range procs.Wait(limit, 0, 1, 3) {
				var report verdictOfRank
				if err := json.Unmarshal([]byte(exit.Output), &report); err != nil {
					t.Fatalf("%v: %s", exit.Err, exit.Output)
				}
				if report.Rank != h.Victim || report.Reason != want.String() {
					t.Errorf("error %q does not name rank %d (%v)", report.Error, h.Victim, want)
				}
				if told := time.Duration(report.At - struck); struck != 0 {
					t.Logf("told after %v", told) // milliseconds, on a machine that is not busy
				}
			}
		})
	}
}
