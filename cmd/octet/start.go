package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/octet-run/octet/actors"
	"github.com/octet-run/octet/actors/ledger"
	"github.com/octet-run/octet/collectives/topology"
	"github.com/octet-run/octet/collectives/transport"
	"github.com/octet-run/octet/coordinator"
	"github.com/octet-run/octet/faults"
	"github.com/octet-run/octet/internal/shm"
	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/kernels/cpu"
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/checkpoint"
	"github.com/octet-run/octet/model/tokenizer"
	"github.com/octet-run/octet/rank"
	"github.com/octet-run/octet/speculation"
)

const (
	// Slabs lie on huge pages where so many rows, a usual verify pass, are a payload
	// for which that pays.
	hugePageRows  = 8
	hugePageBytes = 128 << 10

	chunkRows      = 256 // prefill rows in a round
	verifyRows     = 256 // verify rows in a round
	contextDefault = 32768
	stopTimeout    = 10 * time.Second
	// collectiveTimeout is longer than the supervisor's own patience: it names the
	// rank that stalled, a collective only those that did not come.
	collectiveTimeout = 30 * time.Second
)

// running is a group that serves and the coordinator that runs its rounds.
type running struct {
	settings    *groupSettings
	model       model.Config
	tokenizer   *tokenizer.Tokenizer // nil: the checkpoint has none
	group       *actors.Group
	coordinator *coordinator.Coordinator
	bindings    []topology.Binding
	hugePages   bool // under the slabs of the collectives
	planHash    uint64
	loaded      time.Duration
}

// startOptions are what commands want beyond the group's own settings.
type startOptions struct {
	status  io.Writer // where a progress bar goes, nil for none
	restart actors.Restart
	log     *zap.Logger
	// faults is what is armed, and can be; nil: no faults.
	faults *ledger.Book
	// tokens is the log of accepted tokens, nil for one in memory.
	tokens coordinator.TokenLog
	// view, if set, puts something between the coordinator and the group.
	view func(coordinator.Group) coordinator.Group
	// replays is how often a request may start over; 0: the coordinator's default.
	replays int
	// observer hears of rounds and requests, nil for nobody.
	observer coordinator.Observer
	// onEvent hears what happens to the group. It must not wait; nil for nobody.
	onEvent func(actors.Event)
}

// startGroup starts rank processes and waits until they serve.
func startGroup(ctx context.Context, s *groupSettings, o startOptions) (*running, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	begin := time.Now()
	r := &running{settings: s}
	var err error
	if r.model, err = model.ReadConfig(s.model); err != nil {
		return nil, err
	}
	plans, err := r.readFiles()
	if err != nil {
		return nil, err
	}
	limits, err := s.limits(&r.model, plans)
	if err != nil {
		return nil, err
	}
	config, err := r.groupConfig(ctx, limits, plans, o)
	if err != nil {
		return nil, err
	}
	bar := newLoadBar(o.status)
	var watched atomic.Pointer[coordinator.Coordinator] // once there is one
	config.OnEvent = func(e actors.Event) {
		bar.event(e)
		if o.onEvent != nil {
			o.onEvent(e)
		}
		if c := watched.Load(); c != nil && e.Kind != actors.RankLoading {
			c.Publish(coordinator.GroupEvent{Time: e.Time, Kind: string(e.Kind), Epoch: e.Epoch, Rank: e.Rank, Message: e.Message})
		}
	}
	var injector *faults.Injector
	if o.faults != nil {
		injector = o.faults.Injector()
	}
	config.Faults = injector
	r.group, err = actors.StartGroup(ctx, config)
	bar.finish()
	if err != nil {
		return nil, err
	}
	r.loaded = time.Since(begin)
	if err := r.checkBindings(); err != nil {
		r.stop()
		return nil, err
	}
	var seen coordinator.Group = r.group
	if o.view != nil {
		seen = o.view(r.group)
	}
	drafting, err := s.drafting()
	if err == nil {
		r.coordinator, err = coordinator.New(coordinator.Config{
			Model: s.modelName(), Vocab: r.model.Vocab, Context: limits.context, Tokenizer: r.tokenizer,
			EOS:   r.eos(),
			Batch: s.batch, Blocks: limits.blocks, BlockTokens: kernels.BlockTokens,
			ChunkRows: chunkRows, VerifyRows: verifyRows, Drafting: drafting, Eagle3: s.drafter() != "",
			Observer: o.observer, Log: o.tokens, Replays: o.replays, Faults: injector,
		}, seen)
	}
	if err != nil {
		r.stop()
		return nil, err
	}
	watched.Store(r.coordinator)
	return r, nil
}

// readFiles reads what the supervisor needs of the checkpoints, tokenizer and
// headers side by side: the processors have nothing else to do yet.
func (r *running) readFiles() ([]checkpoint.Plan, error) {
	var (
		reading  sync.WaitGroup
		tokenErr error
	)
	reading.Go(func() { r.tokenizer, tokenErr = loadTokenizer(r.settings.model, r.model.Vocab) })
	plans, err := r.settings.checkFiles(&r.model)
	reading.Wait()
	if tokenErr != nil {
		return nil, tokenErr
	}
	return plans, err
}

// complete runs one request to its end.
func (r *running) complete(ctx context.Context, request coordinator.Request) (coordinator.Event, error) {
	stream, err := r.coordinator.Generate(ctx, request)
	if err != nil {
		return coordinator.Event{}, err
	}
	defer stream.Close()
	all, err := stream.Collect(ctx)
	if err == nil {
		err = all.Finish.Err
	}
	return all, err
}

// stop ends the coordinator and the group. Nothing is left behind.
func (r *running) stop() {
	if r.coordinator != nil {
		r.coordinator.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	_ = r.group.Stop(ctx)
}

// eos is the tokens that end a text, as the model or else its tokenizer says.
func (r *running) eos() []int32 {
	if len(r.model.EOS) == 0 && r.tokenizer != nil {
		return r.tokenizer.EOS()
	}
	return r.model.EOS
}

// limits are the sizes that follow from the model and the machine.
type limits struct {
	context int // positions of the longest sequence
	blocks  int // pages of KV cache
}

func (s *groupSettings) limits(c *model.Config, plans []checkpoint.Plan) (limits, error) {
	context := min(c.MaxPositions, contextDefault)
	if s.context > 0 {
		context = s.context
	}
	if context > c.MaxPositions {
		return limits{}, usagef("--context %d: the model was made for at most %d positions", context, c.MaxPositions)
	}
	// A tree may reach beyond the last position that is kept.
	whole := context + speculation.MaxNodes
	tokens, position := s.kvTokens, kvValues(c)*s.valueBytes()
	budget, most, err := s.kvBudget(plans)
	switch {
	case err != nil:
		return limits{}, err
	case tokens > most/position:
		return limits{}, refusedError{fmt.Errorf("--kv-tokens %d: there is memory for %d, at %d bytes each", tokens, most/position, position)}
	case tokens == 0:
		tokens = min(s.batch*whole, max(whole, budget/position))
	}
	blocks := (tokens + kernels.BlockTokens - 1) / kernels.BlockTokens
	return limits{context: context, blocks: blocks}, nil
}

// kvValues is what one position has on all ranks together.
func kvValues(c *model.Config) int {
	values := 2 * c.Attention.KVHeads * c.Attention.HeadDim
	if c.Latent != nil {
		values = model.MaxRanks * (c.Latent.KVRank + c.Latent.Rope)
	}
	return max(values*c.Layers, 1)
}

// valueBytes is the size of a value in the cache: that of an activation.
func (s *groupSettings) valueBytes() int {
	if len(s.gpus) > 0 {
		return kernels.BF16.Bytes()
	}
	return kernels.F32.Bytes()
}

// kvBudget is the memory that a KV cache takes unasked, and the most there is for it: of
// a GPU's what the weights leave, of a host's a quarter of what is free, at most all.
func (s *groupSettings) kvBudget(plans []checkpoint.Plan) (unasked, most int, err error) {
	if len(s.gpus) > 0 {
		weights := make([]int64, len(plans))
		for i, p := range plans {
			weights[i] = p.Bytes()
		}
		left, err := s.deviceBudget(weights)
		return left, left, err
	}
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 1 << 30, math.MaxInt, nil
	}
	return int((info.Freeram + info.Bufferram) * uint64(info.Unit) / 4), int(info.Totalram * uint64(info.Unit)), nil
}

// groupConfig turns settings into what the supervisor and the ranks are told.
func (r *running) groupConfig(ctx context.Context, l limits, plans []checkpoint.Plan, o startOptions) (actors.Config, error) {
	s := r.settings
	exe, err := os.Executable()
	if err != nil {
		return actors.Config{}, err
	}
	var processors int
	if r.bindings, processors, err = s.bindings(); err != nil {
		return actors.Config{}, err
	}
	dedicated := processors >= s.ranks // every rank has one to itself
	var spin time.Duration
	if processors > s.ranks {
		spin = actors.DedicatedSpin
	}
	r.hugePages = 4*r.model.Hidden*hugePageRows >= hugePageBytes && transport.HugePagesAvailable()
	verdict := cachedVerdict(s.ranks)
	if verdict == nil && s.requireFast && len(s.gpus) == 0 && s.ranks > 1 {
		if verdict, err = probePaths(ctx, s.ranks); err != nil {
			return actors.Config{}, err
		}
	}
	plan, err := planFor(s.ranks, dedicated, r.hugePages, s.requireFast, verdict)
	if err != nil {
		return actors.Config{}, err
	}
	engine := rank.Config{
		Model: s.model, Draft: s.drafter(), DraftOnAll: s.draftOn == "all", WholeExperts: s.experts == "whole",
		Backend: s.backendName(), Devices: s.addresses(), RequireFast: s.requireFast,
		Threads: s.threadsPerRank(r.bindings, dedicated), ISA: cpu.Detect().String(), Dedicated: dedicated,
		LoadLimit: int64(s.loadLimit), ShardBytes: make([]int64, len(plans)),
		Slots: s.batch, Blocks: l.blocks, Context: l.context, MaxRows: chunkRows + verifyRows,
		Plan: plan, CollectiveTimeout: collectiveTimeout,
	}
	for i := range plans {
		engine.ShardBytes[i] = plans[i].Bytes()
	}
	r.planHash = engine.PlanHash()
	encoded, err := engine.Encode()
	if err != nil {
		return actors.Config{}, err
	}
	return actors.Config{
		Ranks: s.ranks,
		Launcher: actors.Processes{Command: func(_ int, spec string) []string {
			return []string{exe, "rank", "--inherit", spec}
		}},
		EngineConfig: encoded,
		Segments:     func(epoch uint32) (map[string]*shm.Segment, error) { return r.segments(epoch, o.faults) },
		CPUs:         func(rank int) []int { return r.bindings[rank].CPUs },
		Spin:         spin,
		Bind:         r.preferMemory,
		Restart:      o.restart,
		Log:          o.log,
	}, nil
}

// segments is the engines' shared memory of one epoch: the slabs of the
// collectives, what GPUs share beside them, and the ledger of faults if there is one.
func (r *running) segments(epoch uint32, faults *ledger.Book) (map[string]*shm.Segment, error) {
	group, err := transport.Create(transport.Config{
		Ranks: r.settings.ranks, MaxRows: chunkRows + verifyRows, MaxWidth: r.model.Hidden, Epoch: epoch,
		HugePages: r.hugePages,
	})
	if err != nil {
		return nil, err
	}
	all := map[string]*shm.Segment{rank.Slabs: group.Segment()}
	if len(r.settings.gpus) > 0 {
		all[rank.Device], err = shm.Create("octet-device", rank.DeviceBytes(r.settings.ranks))
	}
	if err == nil && faults != nil {
		all[ledger.Segment], err = faults.Segment()
	}
	if err != nil {
		for _, segment := range all {
			if segment != nil {
				_ = segment.Close()
			}
		}
		return nil, err
	}
	return all, nil
}

// bindings places the ranks on the processors that this process may use, and counts
// those.
func (s *groupSettings) bindings() ([]topology.Binding, int, error) {
	allowed, err := allowedCPUs()
	if err != nil {
		return nil, 0, err
	}
	addresses := s.addresses()
	if addresses == nil {
		all, err := hostBindings(s.ranks, allowed)
		return all, len(allowed), err
	}
	box, err := topology.Discover("/sys")
	if err != nil {
		return nil, 0, err
	}
	return box.AssignGPUs(addresses, allowed), len(allowed), nil
}

// hostBindings places ranks that compute on processors.
func hostBindings(ranks int, allowed topology.CPUs) ([]topology.Binding, error) {
	box, err := topology.Discover("/sys")
	if err != nil {
		return nil, err
	}
	return box.Assign(ranks, allowed), nil
}

func allowedCPUs() (topology.CPUs, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("read this process's processors: %w", err)
	}
	var cpus topology.CPUs
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

func (s *groupSettings) threadsPerRank(bindings []topology.Binding, dedicated bool) int {
	if s.threads > 0 {
		return s.threads
	}
	if !dedicated {
		return 1
	}
	least := len(bindings[0].CPUs)
	for _, b := range bindings {
		least = min(least, len(b.CPUs))
	}
	return max(least, 1)
}
