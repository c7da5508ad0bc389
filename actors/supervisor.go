package actors

import (
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/octet-run/octet/actors/lifecycle"
	"github.com/octet-run/octet/actors/process"
	"github.com/octet-run/octet/internal/shm"
)

// supervisor is the group's actor: it feeds the state machine and carries out
// what it decides.
type supervisor struct {
	group   *Group
	life    *lifecycle.Machine
	f       *formation
	proxies []*actor.PID
	grace   *time.Timer
}

// What a group's actor is told, beyond what proxies tell it.
type (
	stopGroup   struct{}
	graceOver   struct{}
	resumeGroup struct{ epoch uint32 }
)

func (s *supervisor) receive(c actor.Context) {
	g := s.group
	switch m := c.Message().(type) {
	case *actor.Started:
		s.apply(c, s.life.Start())
	case rankStarted:
		g.started(m)
	case rankLoading:
		if s.f != nil && m.epoch == s.f.epoch {
			s.f.watch.progress(m.rank, false)
			g.loading(m)
		}
	case rankReady:
		if s.f != nil && m.epoch == s.f.epoch {
			s.f.watch.progress(m.rank, true)
			g.ready(m)
			s.apply(c, s.life.Ready(m.epoch, m.rank, m.plan))
		}
	case rankLost:
		s.apply(c, s.life.Lost(m.cause))
	case rankGone:
		g.gone(m)
		s.apply(c, s.life.Gone(m.epoch, m.rank, time.Now()))
	case resumeGroup:
		s.apply(c, s.life.Resumed(m.epoch))
	case stopGroup:
		s.apply(c, s.life.Stop())
	case graceOver:
		if s.life.Phase() == Stopping {
			s.killAll(c)
		}
	}
}

// apply carries out effects, and those that they have in turn.
func (s *supervisor) apply(c actor.Context, effects []lifecycle.Effect) {
	for len(effects) > 0 {
		e := effects[0]
		effects = append(effects[1:], s.carryOut(c, e)...)
	}
}

func (s *supervisor) carryOut(c actor.Context, e lifecycle.Effect) []lifecycle.Effect {
	g := s.group
	switch e.Kind {
	case lifecycle.Form:
		return s.form(c)
	case lifecycle.Serve:
		s.f.watch.serve()
		g.serve(s.f)
	case lifecycle.Abort:
		s.f.board.Abort(s.life.Cause().Rank, shm.Died)
		g.broken(s.life.Cause()) // before who waits for the cause asks for the epoch
		s.f.explain(s.life.Cause())
		s.killAll(c)
	case lifecycle.Drain:
		g.setPhase(Stopping, Event{Kind: GroupCloses, Epoch: s.life.Epoch(), Rank: -1, Message: "stopping"})
		s.f.drain()
		self := c.Self()
		s.grace = time.AfterFunc(g.config.StopGrace, func() { g.system.Send(self, graceOver{}) })
	case lifecycle.Release:
		s.release(c)
	case lifecycle.Pause:
		self, epoch := c.Self(), s.life.Epoch()
		g.setPhase(Waiting, Event{Kind: GroupPauses, Epoch: epoch, Rank: -1, Message: fmt.Sprintf("forms again in %v", e.Pause)})
		time.AfterFunc(e.Pause, func() { g.system.Send(self, resumeGroup{epoch}) })
	case lifecycle.Finish:
		g.close(e.Err)
	}
	return nil
}

// form makes an epoch's memory and starts a proxy for each rank.
func (s *supervisor) form(c actor.Context) []lifecycle.Effect {
	g, epoch := s.group, s.life.Epoch()
	g.forming(epoch)
	f, err := newFormation(&g.config, epoch)
	if err != nil {
		return s.life.FormFailed(&RankError{Epoch: epoch, Rank: -1, Reason: err.Error(), Err: err}, time.Now())
	}
	s.f = f
	self := c.Self()
	f.startWatch(&g.config, g.pid, func(cause *RankError) {
		if cause.Rank >= 0 && process.Stopped(g.pid(cause.Rank)) {
			cause.Reason += ": its process is stopped"
		}
		g.system.Send(self, rankLost{cause})
	})
	s.proxies = s.proxies[:0]
	for r := range g.config.Ranks {
		p := &proxy{group: g, f: f, rank: r}
		// A name of its own in each epoch: what is late for the last one finds nobody.
		pid, err := c.SpawnNamed(g.system.childProps(p.receive), fmt.Sprintf("proxy/%d/%d", epoch, r))
		if err != nil {
			panic(fmt.Sprintf("actors: proxy of rank %d: %v", r, err))
		}
		s.proxies = append(s.proxies, pid)
	}
	return nil
}

func (s *supervisor) killAll(c actor.Context) {
	for _, p := range s.proxies {
		c.Send(p, endProxy{})
	}
}

// release frees an epoch of which no process is left.
func (s *supervisor) release(c actor.Context) {
	if s.grace != nil {
		s.grace.Stop()
	}
	for _, p := range s.proxies {
		c.Stop(p)
	}
	s.proxies = nil
	s.f.watch.stop()
	s.group.roundMu.Lock()
	defer s.group.roundMu.Unlock()
	s.f.release()
	s.f = nil
	s.group.config.Log.Debug("epoch released", zap.Uint32("epoch", s.life.Epoch()))
}
