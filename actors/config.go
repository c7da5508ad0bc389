package actors

import (
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/octet-run/octet/actors/board"
	"github.com/octet-run/octet/faults"
	"github.com/octet-run/octet/internal/shm"
)

// Config is what a group is made of. Ranks and Launcher are required; other zero
// values take the defaults given.
type Config struct {
	Ranks    int
	Launcher Launcher
	// EngineConfig is handed to every rank's Engine.Load.
	EngineConfig []byte
	// Segments makes the engine's own shared memory for an epoch, by name. Every
	// rank finds it by Inherited.Segment; the group closes it with the epoch.
	Segments func(epoch uint32) (map[string]*shm.Segment, error)
	// CPUs is the set a rank is bound to; Bind sets its memory policy, on the
	// thread that forks. Both are for Processes only.
	CPUs func(rank int) []int
	Bind func(rank int) error
	// Spin is how long ranks and coordinator poll for the other's word before they
	// sleep: not at all. It is for groups that leave a processor to the coordinator.
	Spin time.Duration

	// LoadTimeout bounds the time until all ranks are ready: 10 min. LoadStall
	// bounds the time that one makes no progress: 60 s.
	LoadTimeout, LoadStall time.Duration
	// Stall is how long ranks may make no progress in a round: 250 ms, or ten times
	// what the slow rounds of its size are silent for, if that is more, and 20 times
	// as long in the first two rounds of all. While loading and idle it bounds how long
	// one may be stopped by a signal; one that gives no sign of life while idle
	// otherwise has eight times as long.
	Stall time.Duration
	// RoundDeadline bounds a round, however busy its ranks are: no bound.
	RoundDeadline time.Duration
	// LeaveTimeout is how long ranks may take to leave an epoch that is over before
	// they are killed and started anew: 1 s, or twice the slow rounds' silence if that
	// is more.
	LeaveTimeout time.Duration
	// StopGrace is how long ranks may take to leave before they are killed: 5 s.
	StopGrace time.Duration
	Restart   Restart

	// RoundBytes and ResultBytes bound the frames: 4 MiB.
	RoundBytes, ResultBytes int
	// OnEvent, if set, hears all that happens to the group. It must not wait, nor call
	// the group.
	OnEvent func(Event)
	// Faults strike on this side of board and links; nil: none. The ranks' own
	// are their engines' (Inherited.Arm).
	Faults *faults.Injector
	Log    *zap.Logger

	role string // of the ranks, for benchmarks
}

func (c *Config) validate() error {
	if c.Ranks < 1 || c.Ranks > board.MaxRanks {
		return fmt.Errorf("group: %d ranks, want 1 to %d", c.Ranks, board.MaxRanks)
	}
	if c.Launcher == nil {
		return errors.New("group: no Launcher")
	}
	for _, d := range []struct {
		value *time.Duration
		def   time.Duration
	}{
		{&c.LoadTimeout, 10 * time.Minute},
		{&c.LoadStall, time.Minute},
		{&c.Stall, 250 * time.Millisecond},
		{&c.RoundDeadline, 0},
		{&c.LeaveTimeout, time.Second},
		{&c.StopGrace, 5 * time.Second},
	} {
		if *d.value < 0 {
			return fmt.Errorf("group: a time of %v, want none negative", *d.value)
		}
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c.Restart.Validate()
}
