package actors

import (
	"fmt"
	"slices"
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
	// lives are the processes that there are, by rank.
	lives []*incarnation
	// leaving and grace end the time that ranks have to leave an epoch, or for good.
	leaving, grace *time.Timer
	// finished is why the group is over, once that is decided.
	finished error
}

// What a group's actor is told, beyond what proxies and incarnations tell it.
type (
	stopGroup   struct{}
	graceOver   struct{}
	leaveOver   struct{ epoch uint32 }
	resumeGroup struct{ epoch uint32 }
)

func (s *supervisor) receive(c actor.Context) {
	switch m := c.Message().(type) {
	case *actor.Started:
		s.apply(c, s.life.Start())
	case rankStarted:
		s.lives[m.life.rank] = m.life
		s.group.started(m.life, s.life.Epoch())
	case rankLoading, rankReady:
		s.moved(c, m)
	case rankLost:
		s.apply(c, s.life.Lost(m.cause))
	case rankLeft:
		if s.lives[m.of.rank] == m.of {
			s.apply(c, s.life.Left(m.epoch, m.of.rank, time.Now()))
		}
	case rankUnborn:
		s.apply(c, s.life.Lost(m.cause))
		s.gone(c, m.cause.Rank, m.cause.Epoch)
	case rankGone:
		s.buried(c, m)
	case resumeGroup:
		s.apply(c, s.life.Resumed(m.epoch))
	case leaveOver:
		s.apply(c, s.life.LeaveOver(m.epoch))
	case stopGroup:
		s.apply(c, s.life.Stop())
	case graceOver:
		if s.life.Phase() == Stopping {
			s.end(c, s.everybody())
		}
	}
}

// moved hears how far a rank of the current epoch is.
func (s *supervisor) moved(c actor.Context, message any) {
	g := s.group
	switch m := message.(type) {
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
	}
}

// buried hears that nothing is left of a process. It is about the current epoch,
// whichever the process was last in: an epoch cannot do without its rank.
func (s *supervisor) buried(c actor.Context, m rankGone) {
	if s.lives[m.of.rank] != m.of {
		return
	}
	s.lives[m.of.rank] = nil
	m.of.retire() // the next epoch may have begun while it died
	if m.cause != nil {
		m.cause.Epoch = s.life.Epoch()
		s.apply(c, s.life.Lost(m.cause))
	}
	s.gone(c, m.of.rank, s.life.Epoch())
}

func (s *supervisor) gone(c actor.Context, rank int, epoch uint32) {
	s.group.gone(rank)
	s.apply(c, s.life.Gone(epoch, rank, time.Now()))
	s.mayClose()
}

// apply carries out effects, and those that they have in turn.
func (s *supervisor) apply(c actor.Context, effects []lifecycle.Effect) {
	for len(effects) > 0 {
		e := effects[0]
		effects = append(effects[1:], s.carryOut(c, e)...)
	}
}

func (s *supervisor) carryOut(c actor.Context, e lifecycle.Effect) []lifecycle.Effect {
	g, epoch := s.group, s.life.Epoch()
	switch e.Kind {
	case lifecycle.Form:
		return s.form(c, e.Ranks)
	case lifecycle.Serve:
		s.f.watch.serve()
		for _, life := range s.lives {
			life.heed(s.f.board.Thread(life.rank), s.f.board.Guard(life.rank))
		}
		g.serve(s.f)
	case lifecycle.Abort:
		s.f.board.Abort(s.life.Cause().Rank, shm.Died)
		g.broken(s.life.Cause()) // before who waits for the cause asks for the epoch
		s.f.explain(s.life.Cause())
		s.leaving = s.after(c, g.leaveTimeout(), leaveOver{epoch})
	case lifecycle.End:
		s.end(c, e.Ranks)
	case lifecycle.Drain:
		g.setPhase(Stopping, Event{Kind: GroupCloses, Epoch: epoch, Rank: -1, Message: "stopping"})
		s.f.drain()
		s.grace = s.after(c, g.config.StopGrace, graceOver{})
	case lifecycle.Release:
		s.release(c)
	case lifecycle.Pause:
		g.setPhase(Waiting, Event{Kind: GroupPauses, Epoch: epoch, Rank: -1, Message: fmt.Sprintf("forms again in %v", e.Pause)})
		s.after(c, e.Pause, resumeGroup{epoch})
	case lifecycle.Finish:
		s.finished = e.Err
		s.end(c, s.everybody())
		s.mayClose()
	}
	return nil
}

// after sends the actor a message after a while.
func (s *supervisor) after(c actor.Context, d time.Duration, message any) *time.Timer {
	self, system := c.Self(), s.group.system
	return time.AfterFunc(d, func() { system.Send(self, message) })
}

// form makes an epoch's memory and a proxy for each rank. It starts the given ranks;
// the others are there and join.
func (s *supervisor) form(c actor.Context, start []int) []lifecycle.Effect {
	g, epoch := s.group, s.life.Epoch()
	g.forming(epoch, start)
	f, err := newFormation(&g.config, epoch)
	if err != nil {
		return s.life.FormFailed(&RankError{Epoch: epoch, Rank: -1, Reason: err.Error(), Err: err}, time.Now())
	}
	s.f, f.fresh = f, len(start) == g.config.Ranks
	self := c.Self()
	f.startWatch(&g.config, start, g.pid, func(cause *RankError) {
		if cause.Rank >= 0 && process.Stopped(g.pid(cause.Rank)) {
			cause.Reason += ": its process is stopped"
		}
		g.system.Send(self, rankLost{cause})
	})
	for r := range g.config.Ranks {
		p := &proxy{group: g, f: f, rank: r}
		if !slices.Contains(start, r) {
			p.life = s.lives[r]
			p.life.enter(f)
			g.rejoins(p.life, epoch)
		}
		// A name of its own in each epoch: what is late for the last one finds nobody.
		pid, err := c.SpawnNamed(g.system.childProps(p.receive), fmt.Sprintf("proxy/%d/%d", epoch, r))
		if err != nil {
			panic(fmt.Sprintf("actors: proxy of rank %d: %v", r, err))
		}
		s.proxies = append(s.proxies, pid)
	}
	return nil
}

// everybody is all ranks.
func (s *supervisor) everybody() []int {
	all := make([]int, len(s.lives))
	for r := range all {
		all[r] = r
	}
	return all
}

// end kills processes, those being started included.
func (s *supervisor) end(c actor.Context, ranks []int) {
	for _, r := range ranks {
		if life := s.lives[r]; life != nil {
			life.process.Kill()
		} else if s.proxies != nil {
			c.Send(s.proxies[r], endProxy{})
		}
	}
}

// mayClose closes the group once that is decided and no process is left.
func (s *supervisor) mayClose() {
	left := slices.ContainsFunc(s.lives, func(life *incarnation) bool { return life != nil })
	if s.finished != nil && !left {
		s.group.close(s.finished)
	}
}

// release frees an epoch that everybody has left.
func (s *supervisor) release(c actor.Context) {
	for _, p := range s.proxies {
		c.Stop(p)
	}
	s.proxies = nil
	s.free()
}

// free frees the epoch's memory, if there is one. No rank may be left in it.
func (s *supervisor) free() {
	if s.f == nil {
		return
	}
	for _, timer := range []*time.Timer{s.leaving, s.grace} {
		if timer != nil {
			timer.Stop()
		}
	}
	s.f.watch.stop()
	s.group.roundMu.Lock()
	defer s.group.roundMu.Unlock()
	s.f.release()
	s.f = nil
	s.group.config.Log.Debug("epoch released", zap.Uint32("epoch", s.life.Epoch()))
}
