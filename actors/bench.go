package actors

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/internal/shm"
)

// BenchConfig is what BenchRound measures.
type BenchConfig struct {
	Ranks  int
	Rounds int // 2000
	// CPUs are the processors that the coordinator's thread and the ranks are bound
	// to, one each, in turn; none: they are bound to nothing. Ranks poll where there
	// are enough for all.
	CPUs []int
	// Launcher starts processes that end in RunBenchRank. It is Processes.
	Launcher Launcher
	Log      *zap.Logger
}

// BenchResult is the time from publishing a round to its result, without
// compute, and the least that any such exchange takes on this machine: the same
// number of processes, woken by one word and answering by one, with nothing
// in between. Both are measured in turns within one run.
type BenchResult struct {
	Ranks, Rounds      int
	P50, P99           time.Duration
	FloorP50, FloorP99 time.Duration
}

// The roles of ranks that do not serve.
const (
	roleNull  = "null"  // answers rounds without computing
	roleFloor = "floor" // answers the bare words
)

// benchTurn is how many rounds run before it is the other side's turn; benchRest
// is the pause in between, after which idle ranks hardly wake up.
const (
	benchTurn = 250
	benchRest = 3 * 50 * time.Millisecond
)

// BenchRound measures what a round costs without compute.
func BenchRound(ctx context.Context, c BenchConfig) (BenchResult, error) {
	if c.Rounds <= 0 {
		c.Rounds = 2000
	}
	config := Config{
		Ranks: c.Ranks, Launcher: c.Launcher, Log: c.Log, role: roleNull,
		Restart: Restart{Disabled: true}, Stall: 5 * time.Second,
	}
	if len(c.CPUs) > 0 {
		config.CPUs = c.cpuOf
	}
	if len(c.CPUs) > c.Ranks {
		config.Spin = DedicatedSpin
	}
	group, err := StartGroup(ctx, config)
	if err != nil {
		return BenchResult{}, err
	}
	defer func() { _ = group.Stop(ctx) }()
	floor, err := startFloor(ctx, c)
	if err != nil {
		return BenchResult{}, err
	}
	defer floor.stop()

	// As in a coordinator that has a thread for its rounds.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	unbind, err := c.bindThread()
	if err != nil {
		return BenchResult{}, err
	}
	defer unbind()
	r := &round.Round{Epoch: group.Epoch(), Entries: []round.Entry{{Kind: round.Decode, Slot: 1, Tokens: []int32{1}}}}
	var rounds, floors []time.Duration
	for len(rounds) < c.Rounds {
		if rounds, err = benchTurns(ctx, rounds, func() error { _, err := group.Do(ctx, r); return err }); err != nil {
			return BenchResult{}, err
		}
		if floors, err = benchTurns(ctx, floors, floor.exchange); err != nil {
			return BenchResult{}, err
		}
	}
	result := BenchResult{Ranks: c.Ranks, Rounds: len(rounds)}
	result.P50, result.P99 = percentiles(rounds)
	result.FloorP50, result.FloorP99 = percentiles(floors)
	return result, nil
}

// DedicatedSpin is the Config.Spin of a group whose ranks and coordinator have a
// processor each: longer than an exchange takes, short beside any real round.
const DedicatedSpin = 50 * time.Microsecond

// cpuOf leaves the first processor to the coordinator until the others are taken.
func (c *BenchConfig) cpuOf(rank int) []int { return []int{c.CPUs[(rank+1)%len(c.CPUs)]} }

// bindThread binds the calling thread to the first processor until unbind.
func (c *BenchConfig) bindThread() (unbind func(), err error) {
	if len(c.CPUs) == 0 {
		return func() {}, nil
	}
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, fmt.Errorf("read the processors of the benchmark's thread: %w", err)
	}
	one.Set(c.CPUs[0])
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return nil, fmt.Errorf("bind the benchmark's thread to processor %d: %w", c.CPUs[0], err)
	}
	return func() { _ = unix.SchedSetaffinity(0, &before) }, nil
}

// benchTurns runs one turn of an exchange, the first few of which warm up.
func benchTurns(ctx context.Context, times []time.Duration, exchange func() error) ([]time.Duration, error) {
	const warm = 10
	for i := range benchTurn + warm {
		start := time.Now()
		if err := exchange(); err != nil {
			return nil, err
		}
		if i >= warm {
			times = append(times, time.Since(start))
		}
	}
	select {
	case <-time.After(benchRest):
		return times, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func percentiles(times []time.Duration) (p50, p99 time.Duration) {
	slices.Sort(times)
	return times[len(times)/2], times[len(times)*99/100]
}

// RunBenchRank is the life of a rank that BenchRound started: one whose
// Inherited.Role is not empty.
func RunBenchRank(ctx context.Context, in *Inherited) error {
	switch in.Role {
	case roleNull:
		return RunRank(ctx, in, nullEngine{in}, zap.NewNop())
	case roleFloor:
		return runFloorRank(ctx, in)
	default:
		return fmt.Errorf("rank %d: there is no role %q", in.Rank, in.Role)
	}
}

// nullEngine answers without computing.
type nullEngine struct{ in *Inherited }

// Load has nothing to load.
func (nullEngine) Load(context.Context, []byte, func(done, total uint64)) (Loaded, error) {
	return Loaded{Device: "none"}, nil
}

// Step echoes the tokens.
func (e nullEngine) Step(r *round.Round) (*round.Result, uint64, error) {
	e.in.Seat().Op(r.Seq)
	if e.in.Rank != 0 {
		return nil, e.in.Seat().Hash(), nil
	}
	result := &round.Result{Outcomes: make([]round.Outcome, len(r.Entries))}
	for i, entry := range r.Entries {
		result.Outcomes[i] = round.Outcome{Slot: entry.Slot, Tokens: entry.Tokens}
	}
	return result, e.in.Seat().Hash(), nil
}

// Abort has nothing to abort.
func (nullEngine) Abort() {}

// Close has nothing to close.
func (nullEngine) Close() error { return nil }

// The words of the floor: the round's number, who has answered, the doorbell.
const (
	floorSegment  = "floor"
	floorRound    = 0
	floorArrived  = shm.CacheLine
	floorDoorbell = 2 * shm.CacheLine
	floorBytes    = 4096
)

// floor is the bare exchange.
type floor struct {
	formation *formation
	processes []RankProcess
	segment   *shm.Segment
	ranks     uint32
	seq       uint32
}

func startFloor(ctx context.Context, c BenchConfig) (*floor, error) {
	segment, err := shm.Create("octet-floor", floorBytes)
	if err != nil {
		return nil, err
	}
	config := &Config{Ranks: c.Ranks, Launcher: c.Launcher, Segments: func(uint32) (map[string]*shm.Segment, error) {
		return map[string]*shm.Segment{floorSegment: segment}, nil
	}}
	f, err := newFormation(config, 1)
	if err != nil {
		return nil, err
	}
	fl := &floor{formation: f, segment: segment, ranks: uint32(c.Ranks)}
	for r := range c.Ranks {
		h, files := handoff{role: roleFloor, rank: r, ranks: c.Ranks, epoch: 1, fresh: true}.withSegments(f.handed(r))
		launch := Launch{Rank: r, Spec: h.String(), Files: files, handoff: h}
		if len(c.CPUs) > 0 {
			launch.CPUs = c.cpuOf(r)
		}
		p, err := c.Launcher.Launch(launch)
		if err != nil {
			fl.stop()
			return nil, err
		}
		fl.processes = append(fl.processes, p)
	}
	for segment.Word(floorArrived).Load() < fl.ranks { // each says once that it is there
		if err := ctx.Err(); err != nil {
			fl.stop()
			return nil, err
		}
		time.Sleep(time.Millisecond)
	}
	return fl, nil
}

// exchange is one bare round.
func (f *floor) exchange() error {
	doorbell := f.segment.Word(floorDoorbell)
	f.segment.Word(floorArrived).Store(0)
	f.seq++
	word := f.segment.Word(floorRound)
	word.Store(f.seq)
	word.WakeAll()
	for start := time.Now(); doorbell.Load() != f.seq; {
		if time.Since(start) > 5*time.Second {
			return errors.New("the bare exchange got no answer within 5 s")
		}
		doorbell.Sleep(f.seq - 1)
	}
	return nil
}

// stop kills the processes and frees the memory.
func (f *floor) stop() {
	for _, p := range f.processes {
		p.Kill()
		<-p.Done()
	}
	f.formation.release()
}

// runFloorRank answers bare rounds until it is killed.
func runFloorRank(ctx context.Context, in *Inherited) error {
	segment := in.Segment(floorSegment)
	if segment == nil {
		return fmt.Errorf("rank %d: no segment %q was inherited", in.Rank, floorSegment)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	word, doorbell, arrived := segment.Word(floorRound), segment.Word(floorDoorbell), segment.Word(floorArrived)
	arrived.Add(1)
	last, idle := uint32(0), time.Now()
	for ctx.Err() == nil {
		seq := word.Load()
		if seq == last {
			if time.Since(idle) > 50*time.Millisecond {
				word.Block(seq, 25*time.Millisecond)
			} else {
				word.Sleep(seq)
			}
			continue
		}
		last, idle = seq, time.Now()
		if arrived.Add(1) == uint32(in.Ranks) {
			doorbell.Store(seq)
			doorbell.Wake(1)
		}
	}
	return ctx.Err()
}
