package actors

import (
	"os"

	"github.com/asynkron/protoactor-go/actor"

	octetv1 "github.com/octet-run/octet/proto/octet/v1"
)

// proxy is the supervisor's stand-in for one rank of one epoch: the actor that
// brings the rank's process into the epoch, started for it or from the last one, and
// hears from it there.
type proxy struct {
	group *Group
	f     *formation
	rank  int
	// life is the rank's process: nil until there is one.
	life *incarnation
}

// What a proxy tells its group.
type (
	rankStarted struct{ life *incarnation }
	rankUnborn  struct{ cause *RankError } // there is no process
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
)

// endProxy tells a proxy to kill its process.
type endProxy struct{}

// receive is the proxy's actor.
func (p *proxy) receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		p.begin(c)
	case *octetv1.LoadProgress:
		p.tell(c, rankLoading{p.f.epoch, p.rank, m.GetDoneBytes(), m.GetTotalBytes()})
	case *octetv1.Ready:
		p.tell(c, rankReady{p.f.epoch, p.rank, m.GetPlanHash(), m.GetDevice()})
	case *octetv1.Failed:
		p.tell(c, rankLost{p.loss("failed: " + m.GetReason())})
	case endProxy:
		if p.life != nil {
			p.life.process.Kill()
		}
	}
}

func (p *proxy) tell(c actor.Context, message any) { c.Send(c.Parent(), message) }

func (p *proxy) loss(reason string) *RankError {
	return &RankError{Epoch: p.f.epoch, Rank: p.rank, Reason: reason}
}

// begin brings the process into the epoch and asks it to load.
func (p *proxy) begin(c actor.Context) {
	config := &p.group.config
	h, files := handoff{role: config.role, rank: p.rank, ranks: config.Ranks, epoch: p.f.epoch, fresh: p.f.fresh}.withSegments(p.f.handed(p.rank))
	if p.life != nil {
		if err := p.life.succession.bequeath(h, files); err != nil {
			p.tell(c, rankLost{p.loss("could not be given the epoch: " + err.Error())})
			return
		}
	} else if err := p.launch(c, h, files); err != nil {
		p.tell(c, rankUnborn{p.loss("could not start: " + err.Error())})
		return
	}
	p.group.system.actors.Root.RequestWithCustomSender(actor.NewPID(rankAddress(p.rank), rankActor), &octetv1.Load{
		Rank: uint32(p.rank), Ranks: uint32(config.Ranks), Config: config.EngineConfig,
	}, c.Self())
}

// launch starts the process.
func (p *proxy) launch(c actor.Context, h handoff, files []*os.File) error {
	config := &p.group.config
	ours, theirs, err := newSuccession()
	if err != nil {
		return err
	}
	defer theirs.Close()
	h.fds[successionFile] = successionFD(h)
	l := Launch{Rank: p.rank, Spec: h.String(), Files: append(files, theirs), Log: p.log, handoff: h}
	if config.CPUs != nil {
		l.CPUs = config.CPUs(p.rank)
	}
	if config.Bind != nil {
		l.Bind = func() error { return config.Bind(p.rank) }
	}
	started, err := config.Launcher.Launch(l)
	if err != nil {
		ours.close()
		return err
	}
	p.life = &incarnation{group: p.group, supervisor: c.Parent(), rank: p.rank, process: started, succession: ours}
	p.life.enter(p.f)
	p.tell(c, rankStarted{p.life})
	p.life.watch() // tells of its end, after that
	return nil
}

func (p *proxy) log(line string) {
	p.group.emit(Event{Kind: RankOutput, Epoch: p.f.epoch, Rank: p.rank, Message: line})
}
