package collectives

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/octet-run/octet/collectives/transport"
	"github.com/octet-run/octet/internal/shm"
)

// Moment is where in an operation a rank is lost.
type Moment string

// The moments. Not every algorithm has all of them.
const (
	BeforePost  Moment = "before post"
	AfterPost   Moment = "after post"
	InScatter   Moment = "in scatter"
	InExchange  Moment = "in exchange"
	InGather    Moment = "in gather"
	WhileReduce Moment = "while it reduces"
)

// MomentsOf is the moments of an algorithm: its phases, and when it is entered.
func MomentsOf(a Algorithm, s Shape) []Moment {
	moments := []Moment{BeforePost, AfterPost}
	seen := map[Moment]bool{}
	for rank := range s.Ranks {
		for _, step := range a.Program(s, rank, Payload{Rows: 1, Width: lossWidth}) {
			m := momentOf(step)
			if m != "" && !seen[m] {
				seen[m] = true
				moments = append(moments, m)
			}
		}
	}
	return moments
}

func momentOf(s Step) Moment {
	switch {
	case s.Do == LastArrival:
		return WhileReduce
	case s.Do == Wait && s.Peer != Everyone:
		return map[transport.Phase]Moment{
			transport.Scatter: InScatter, transport.Exchange: InExchange, transport.Gather: InGather,
		}[s.Phase]
	}
	return ""
}

// RankLoss is what one rank's process does in a measurement of losses: operations
// until one fails. At the moment, the victim kills or stops itself.
type RankLoss struct {
	Algorithm string
	Shape     Shape
	Moment    Moment
	Victim    int
	Stop      bool          // it stops, as a hung rank does, and does not die
	Deadline  time.Duration // of every wait for one that stops, once all ranks are there
}

// Loss is what a process reports: a survivor whom its error names, and when it had
// it; the victim when it struck.
type Loss struct {
	Rank   int
	Reason string
	At     int64 // CLOCK_MONOTONIC, which processes share, in nanoseconds
	Error  string
}

const (
	lossStart = time.Minute // until all ranks are there
	lossWidth = 1024
	lossOp    = 8    // the first operation in which the victim strikes
	lossMost  = 1000 // operations; then the moment never came
	// lossLinger is how long a survivor stays when it has reported. Survivors of a real
	// loss do not end; here one's end, some milliseconds of its processor, would hold
	// up the next one's error.
	lossLinger = 100 * time.Millisecond
)

// Run runs operations until one fails and writes a Loss to out. The victim writes
// its own and does not return.
func (l RankLoss) Run(group *transport.Group, rank int, out *os.File) error {
	m, err := group.Attach(rank, transport.Polling{Timeout: lossStart})
	if err != nil {
		return err
	}
	plan := Plan{
		Version: PlanVersion, Shape: l.Shape, AllowInexact: true,
		Choices: []Choice{{Algorithm: l.Algorithm}},
	}
	c, err := New(doomedLink{m, l, out}, Config{Plan: plan})
	if err != nil {
		return err
	}
	if err := c.Barrier(); err != nil { // the processes do not start at once
		return err
	}
	partial := make([]float32, lossWidth)
	for op := range uint32(lossMost) {
		if l.Stop && op+1 == lossOp { // what a rank does for the first time may take longer
			m.SetTimeout(l.Deadline)
		}
		if _, err = c.AllReduce(partial, 1, lossWidth); err != nil {
			break
		}
	}
	if err == nil {
		return fmt.Errorf("rank %d was never %q in %d operations", l.Victim, l.Moment, lossMost)
	}
	report := Loss{Rank: -1, Error: err.Error()}
	if report.At, err = monotonic(); err != nil {
		return err
	}
	var timeout *transport.TimeoutError
	var abort *shm.AbortError
	switch {
	case errors.As(c.fault, &timeout):
		report.Rank, report.Reason = timeout.Rank, shm.TimedOut.String()
	case errors.As(c.fault, &abort):
		report.Rank, report.Reason = abort.Rank, abort.Reason.String()
	}
	if err := json.NewEncoder(out).Encode(report); err != nil {
		return err
	}
	time.Sleep(lossLinger)
	return nil
}

func monotonic() (int64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, fmt.Errorf("read the monotonic clock: %w", err)
	}
	return ts.Nano(), nil
}

// doomedLink strikes its own process at the moment, if it is the victim's.
type doomedLink struct {
	*transport.SharedMemory
	loss RankLoss
	out  *os.File
}

func (l doomedLink) at(m Moment, op uint32) {
	if op < lossOp || m != l.loss.Moment || l.Rank() != l.loss.Victim {
		return
	}
	blow := syscall.SIGKILL
	if l.loss.Stop {
		blow = syscall.SIGSTOP
	}
	now, err := monotonic()
	if err == nil {
		err = json.NewEncoder(l.out).Encode(Loss{Rank: l.loss.Victim, At: now})
	}
	if err == nil {
		err = syscall.Kill(os.Getpid(), blow)
	}
	if err != nil {
		panic(fmt.Sprintf("collectives: rank %d cannot strike itself: %v", l.Rank(), err))
	}
	time.Sleep(time.Minute) // until the signal has struck every thread
}

func (l doomedLink) Post(op uint32, d transport.Descriptor) {
	l.at(BeforePost, op)
	l.SharedMemory.Post(op, d)
	l.at(AfterPost, op)
}

func (l doomedLink) Await(from, tag int, op uint32, phase transport.Phase) error {
	l.at(momentOf(Step{Do: Wait, Phase: phase}), op)
	return l.SharedMemory.Await(from, tag, op, phase)
}

// Arrive makes the victim the last to arrive where it is to be lost as it reduces.
func (l doomedLink) Arrive(op uint32) bool {
	if op >= lossOp && l.loss.Moment == WhileReduce && l.Rank() == l.loss.Victim {
		time.Sleep(5 * time.Millisecond)
	}
	return l.SharedMemory.Arrive(op)
}

// Claim strikes with a chunk in hand.
func (l doomedLink) Claim(op uint32, chunks int) (int, bool) {
	chunk, ok := l.SharedMemory.Claim(op, chunks)
	if ok {
		l.at(WhileReduce, op)
	}
	return chunk, ok
}
