package actors

import (
	"errors"
	"fmt"
	"sync"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/octet-run/octet/actors/process"
	"github.com/octet-run/octet/internal/shm"
	octetv1 "github.com/octet-run/octet/proto/octet/v1"
)

// proxy is the supervisor's stand-in for one rank of one epoch: the actor that
// owns its process and its end of the link, and tells the group what becomes of
// them. It reports a loss before it reports that the rank is gone, and that
// exactly once.
type proxy struct {
	group *Group
	f     *formation
	rank  int

	process RankProcess
}

// What a proxy tells its group.
type (
	rankStarted struct {
		epoch   uint32
		rank    int
		process RankProcess
	}
	rankLoading struct {
		epoch       uint32
		rank        int
		done, total uint64
	}
	rankReady struct {
		epoch  uint32
		rank   int
		plan   uint64
		device string
	}
	rankLost struct{ cause *RankError }
	rankGone struct {
		epoch uint32
		rank  int
	}
)

// endProxy tells a proxy to kill its process.
type endProxy struct{}

// receive is the proxy's actor.
func (p *proxy) receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		if err := p.launch(c); err != nil {
			p.tell(c, rankLost{p.loss("could not start: " + err.Error())})
			p.tell(c, rankGone{p.f.epoch, p.rank})
		}
	case *octetv1.LoadProgress:
		p.tell(c, rankLoading{p.f.epoch, p.rank, m.GetDoneBytes(), m.GetTotalBytes()})
	case *octetv1.Ready:
		p.tell(c, rankReady{p.f.epoch, p.rank, m.GetPlanHash(), m.GetDevice()})
	case *octetv1.Failed:
		p.tell(c, rankLost{p.loss("failed: " + m.GetReason())})
	case endProxy:
		if p.process != nil {
			p.process.Kill()
		}
	}
}

func (p *proxy) tell(c actor.Context, message any) { c.Send(c.Parent(), message) }

func (p *proxy) loss(reason string) *RankError {
	return &RankError{Epoch: p.f.epoch, Rank: p.rank, Reason: reason}
}

// launch starts the process and what watches it, and asks it to load.
func (p *proxy) launch(c actor.Context) error {
	config := &p.group.config
	h, files := newHandoff(config.role, p.rank, config.Ranks, p.f.epoch, p.f.handed(p.rank))
	l := Launch{Rank: p.rank, Spec: h.String(), Files: files, Log: p.log, handoff: h}
	if config.CPUs != nil {
		l.CPUs = config.CPUs(p.rank)
	}
	if config.Bind != nil {
		l.Bind = func() error { return config.Bind(p.rank) }
	}
	started, err := config.Launcher.Launch(l)
	if err != nil {
		return err
	}
	p.process = started
	p.tell(c, rankStarted{p.f.epoch, p.rank, started})

	end, address, system := p.f.ends[p.rank], rankAddress(p.rank), p.group.system
	system.attach(address, end)
	var delivery sync.WaitGroup
	group, self := c.Parent(), c.Self()
	delivery.Go(func() {
		if err := system.deliver(address, end); err != nil {
			system.Send(group, rankLost{p.loss("sent damaged messages: " + err.Error())})
		}
	})
	go func() {
		p.await(started, func(cause *RankError) { system.Send(group, rankLost{cause}) })
		end.Close()
		delivery.Wait()
		system.detach(address, end)
		system.Send(group, rankGone{p.f.epoch, p.rank})
	}()
	system.actors.Root.RequestWithCustomSender(actor.NewPID(address, rankActor), &octetv1.Load{
		Rank: uint32(p.rank), Ranks: uint32(config.Ranks), Config: config.EngineConfig,
	}, self)
	return nil
}

// await waits for the end of the process. Unless ranks are meant to leave, the end
// of one is the end of the epoch.
func (p *proxy) await(started RankProcess, lost func(*RankError)) {
	<-started.Exited()
	if !p.f.draining.Load() {
		// Before anything else: the other ranks may be waiting for this one.
		p.f.board.Abort(p.rank, shm.Died)
	}
	<-started.Done()
	err := started.Err()
	switch {
	case p.f.draining.Load():
		if err != nil {
			p.f.board.Abort(p.rank, shm.Died)
		}
	case !asBystander(err) || !p.f.explained():
		lost(p.exit(err))
	}
}

// asBystander reports whether a rank ended because its group did.
func asBystander(err error) bool {
	var exit *process.ExitError
	return errors.Is(err, shm.ErrAborted) || errors.As(err, &exit) && exit.Code == exitAborted
}

// exit says what a process's end means.
func (p *proxy) exit(err error) *RankError {
	if err == nil {
		return p.loss("left although nobody asked it to")
	}
	var exit *process.ExitError
	if !errors.As(err, &exit) {
		return &RankError{Epoch: p.f.epoch, Rank: p.rank, Reason: "failed: " + err.Error(), Err: err}
	}
	reason := fmt.Sprintf("(pid %d) died: %s", exit.PID, exit.Status)
	if line := exit.Telling(); line != "" {
		reason += fmt.Sprintf("; its last words: %q", line)
	}
	return &RankError{Epoch: p.f.epoch, Rank: p.rank, Reason: reason, Err: err}
}

func (p *proxy) log(line string) {
	p.group.emit(Event{Kind: RankOutput, Epoch: p.f.epoch, Rank: p.rank, Message: line})
}
