package actors

import (
	"log/slog"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	cmap "github.com/orcaman/concurrent-map"
	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"
	"go.uber.org/zap/zapcore"

	"github.com/octet-run/octet/actors/link"
)

// System is one process's actors and its links to other processes.
type System struct {
	actors *actor.ActorSystem
	// dispatcher runs mailboxes: goroutines, or in a simulation a seeded order.
	dispatcher actor.Dispatcher
	// strategy stops what panics, and tells OnCrash.
	strategy actor.SupervisorStrategy
	log      *zap.Logger

	mu    sync.RWMutex
	links map[string]*link.End // by address
}

// SystemConfig is how a System is set up.
type SystemConfig struct {
	// Address is what other processes call this one.
	Address string
	// Dispatcher runs the mailboxes; nil: a goroutine for each busy one.
	Dispatcher actor.Dispatcher
	// OnCrash, if set, hears that an actor panicked. It is called from the actor's
	// mailbox and must not wait.
	OnCrash func(reason any)
	// Log gets warnings and errors of the actor library; nil: nobody.
	Log *zap.Logger
}

// throughput is how many messages a mailbox handles before it yields.
const throughput = 100

// fewMaps makes the library's registry small. It keeps processes by name in 1024
// maps of SHARD_COUNT maps each: 32,768 by default, for the ten or so actors of a
// process, and making them was a fifth of what starting a rank cost. Every registry
// of a process must be made under the same count, so it is set once, before the first.
var fewMaps = sync.OnceFunc(func() { cmap.SHARD_COUNT = 1 })

// NewSystem starts a system.
func NewSystem(c SystemConfig) *System {
	fewMaps()
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	if c.Dispatcher == nil {
		c.Dispatcher = actor.NewDefaultDispatcher(throughput)
	}
	s := &System{dispatcher: c.Dispatcher, log: c.Log, links: map[string]*link.End{}}
	s.strategy = actor.NewOneForOneStrategy(0, 0, func(reason any) actor.Directive {
		if c.OnCrash != nil {
			c.OnCrash(reason)
		}
		return actor.StopDirective
	})
	s.actors = actor.NewActorSystem(
		actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return bridge(c.Log) }),
		actor.WithDeadLetterThrottleInterval(100*time.Millisecond),
	)
	// Before anything is spawned: PIDs carry the address they were made under.
	s.actors.ProcessRegistry.Address = c.Address
	s.actors.ProcessRegistry.RegisterAddressResolver(func(pid *actor.PID) (actor.Process, bool) {
		return remote{system: s}, true
	})
	return s
}

// bridge lets the actor library, which logs by slog, write to zap. What it calls
// information is noise to our users.
func bridge(log *zap.Logger) *slog.Logger {
	core := log.Core()
	if quieter, err := zapcore.NewIncreaseLevelCore(core, zapcore.WarnLevel); err == nil {
		core = quieter
	}
	return slog.New(zapslog.NewHandler(core, zapslog.WithName("protoactor")))
}

// Spawn starts an actor that is never restarted: when it panics it stops, and
// whoever depends on it sees that.
func (s *System) Spawn(name string, receive func(actor.Context)) (*actor.PID, error) {
	return s.actors.Root.SpawnNamed(s.props(receive), name)
}

// props are those of a top actor; childProps those of an actor's child.
func (s *System) props(receive func(actor.Context)) *actor.Props {
	return s.childProps(receive).Configure(actor.WithGuardian(s.strategy))
}

func (s *System) childProps(receive func(actor.Context)) *actor.Props {
	return actor.PropsFromFunc(receive, actor.WithDispatcher(s.dispatcher), actor.WithSupervisor(s.strategy))
}

// Send sends a message to an actor, here or in another process.
func (s *System) Send(pid *actor.PID, message any) { s.actors.Root.Send(pid, message) }

// stop ends an actor and its children and waits for it, for at most limit. It
// reports whether the actor ended.
func (s *System) stop(pid *actor.PID, limit time.Duration) bool {
	gone := make(chan struct{})
	watcher := s.actors.Root.Spawn(s.props(func(c actor.Context) {
		switch m := c.Message().(type) {
		case *actor.Started:
			c.Watch(pid)
			c.Stop(pid)
		case *actor.Terminated:
			if m.Who.Equal(pid) {
				c.Stop(c.Self())
			}
		case *actor.Stopped:
			close(gone)
		}
	}))
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-gone:
		return true
	case <-timer.C:
		s.log.Warn("an actor did not stop in time", zap.String("actor", pid.GetId()))
		s.actors.Root.Stop(watcher)
		return false
	}
}

// close ends the system. Its actors must have been stopped.
func (s *System) close() { s.actors.Shutdown() }
