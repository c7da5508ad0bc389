package main

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/octet-run/octet/actors"
	"github.com/octet-run/octet/actors/ledger"
	"github.com/octet-run/octet/coordinator"
	"github.com/octet-run/octet/faults"
	octetv1 "github.com/octet-run/octet/proto/octet/v1"
)

// injection carries out the faults that act on whole processes. Those that strike
// inside one are its injector's.
type injection struct {
	book  *ledger.Book
	group *actors.Group

	stop context.CancelFunc
	done sync.WaitGroup
}

// injectEvery is how often the time of a fault from outside is looked at: often
// enough that it strikes in the middle of a round.
const injectEvery = 2 * time.Millisecond

func startInjection(book *ledger.Book, group *actors.Group) *injection {
	ctx, cancel := context.WithCancel(context.Background())
	in := &injection{book: book, group: group, stop: cancel}
	in.done.Go(func() {
		tick := time.NewTicker(injectEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				for _, s := range book.DueOutside() {
					in.carryOut(ctx, s)
				}
			}
		}
	})
	return in
}

func (in *injection) close() {
	in.stop()
	in.done.Wait()
}

var signals = map[faults.Verb]unix.Signal{faults.Kill: unix.SIGKILL, faults.Stop: unix.SIGSTOP, faults.Term: unix.SIGTERM}

func (in *injection) carryOut(ctx context.Context, s ledger.Strike) {
	signal := signals[s.Fault.Do]
	if s.Rank == faults.Supervisor {
		_ = unix.Kill(os.Getpid(), signal)
		return
	}
	in.group.Signal(s.Rank, signal)
	if s.Fault.Do != faults.Stop {
		return
	}
	in.done.Go(func() {
		select {
		case <-time.After(s.Fault.For):
		case <-ctx.Done():
		}
		in.group.Signal(s.Rank, unix.SIGCONT)
	})
}

// counted passes on what an observer hears and counts the rounds for the book.
type counted struct {
	coordinator.Observer // may be nil
	book                 *ledger.Book
}

func (c counted) RoundDone(r coordinator.RoundReport) {
	c.book.RoundDone()
	if c.Observer != nil {
		c.Observer.RoundDone(r)
	}
}

func (c counted) RequestDone(r *coordinator.Request, f *coordinator.Finish) {
	if c.Observer != nil {
		c.Observer.RequestDone(r, f)
	}
}

// addFaults has the host answer the calls about faults.
func addFaults(host *coordinator.Host, book *ledger.Book, ranks int) {
	host.ArmFault = func(_ context.Context, q *octetv1.ArmFaultRequest) (*octetv1.ArmFaultResponse, error) {
		script, err := faults.Parse(q.GetScript(), ranks)
		if err == nil {
			err = checkArmable(script)
		}
		if err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		entries, err := book.Arm(script.Faults)
		if err != nil {
			return nil, status.Error(codes.ResourceExhausted, err.Error())
		}
		return &octetv1.ArmFaultResponse{Faults: wireFaults(entries)}, nil
	}
	host.ListFaults = func(context.Context, *octetv1.ListFaultsRequest) (*octetv1.ListFaultsResponse, error) {
		return &octetv1.ListFaultsResponse{Faults: wireFaults(book.List())}, nil
	}
	host.ClearFaults = func(_ context.Context, q *octetv1.ClearFaultsRequest) (*octetv1.ClearFaultsResponse, error) {
		n, err := book.Clear(q.GetIds()...)
		if err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		return &octetv1.ClearFaultsResponse{Cleared: uint32(n)}, nil
	}
}

// checkArmable refuses what a server cannot do.
func checkArmable(script *faults.Script) error {
	if len(script.Faults) == 0 {
		return errors.New("the script has no fault")
	}
	if len(script.Expectations) > 0 {
		return &faults.SyntaxError{Line: script.Expectations[0].Line, Column: 1, Problem: "expect is for octet fault run: a server has no end"}
	}
	return checkSupervisor(script)
}

// checkSupervisor refuses what nobody would be there to undo.
func checkSupervisor(script *faults.Script) error {
	for _, f := range script.Faults {
		if f.Rank == faults.Supervisor && f.Do == faults.Stop {
			return &faults.SyntaxError{Line: f.Line, Column: f.Column, Problem: "a stopped supervisor cannot go on by itself: use kill or term"}
		}
	}
	return nil
}

func wireFaults(entries []ledger.Entry) []*octetv1.Fault {
	var list []*octetv1.Fault
	for _, e := range entries {
		list = append(list, &octetv1.Fault{Id: e.ID, Line: e.Fault.String(), Fired: e.Fired, Hits: uint32(e.Strikes)})
	}
	return list
}
