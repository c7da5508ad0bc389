package rank

import (
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"time"

	"github.com/octet-run/octet/collectives/transport"
	"github.com/octet-run/octet/faults"
	"github.com/octet-run/octet/kernels/cpu"
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/checkpoint"
	"github.com/octet-run/octet/model/eagle3"
	"github.com/octet-run/octet/model/kvcache"
	"github.com/octet-run/octet/model/load"
)

// Place is a rank's place in its group and what it shares with the others.
type Place struct {
	Rank, Ranks int
	Slabs       *transport.Group
	// Record is told of every collective operation, Wait and Waited of its begin and
	// of the time spent in it, WaitsFor, if set, for whom it is in a long one. Beat
	// hears that a long piece of work is getting on.
	Record   func(operation uint64)
	Wait     func()
	WaitsFor func(rank int)
	Waited   func(time.Duration)
	Beat     func()
	// Broken hears at once that a collective failed. The pass that it is part of goes
	// on to its end before Step says so; nil: that is soon enough.
	Broken func()
	// Later is set where other ranks may have loaded in an earlier epoch and wait for
	// this rank alone.
	Later bool
	// Faults strike in this rank; nil: none.
	Faults *faults.Injector
	// Device is the memory that ranks on GPUs share, DeviceBytes of it.
	Device []byte

	open func(c *Config, rank int, beat func()) (device, error) // nil: the GPU itself
}

// Load builds the rank's engine. loaded is told how many bytes of weights of how
// many are in.
func Load(c Config, at Place, loaded func(done, total int64)) (*Engine, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	e := &Engine{config: c, rank: at.Rank, slots: make([]*slot, c.Slots)}
	if err := e.load(at, loaded); err != nil {
		_ = e.Close()
		return nil, err
	}
	return e, nil
}

func (e *Engine) load(at Place, loaded func(done, total int64)) error {
	c := &e.config
	e.faults = at.Faults
	if err := e.strike(faults.RankLoad, faults.Where{}); err != nil {
		return err
	}
	cfg, files, err := e.open(c.Model)
	if err != nil {
		return err
	}
	if err := e.openBackend(at, &cfg); err != nil {
		return err
	}
	if err := e.connect(at); err != nil {
		return err
	}
	e.cache = kvcache.New(c.Blocks)
	progress := &progress{report: loaded, beat: at.Beat, limit: c.LoadLimit}
	if !at.Later {
		progress.meet = e.reducer.communicator().Barrier
		if err := e.prove(); err != nil { // before the window: they come to that together
			return err
		}
		_, _ = e.reducer.take() // it is no part of the first round
		progress.window = window(at)
	}
	return e.loadModels(at, cfg, files, progress)
}

// window is what the ranks share to load, nil for a rank alone. They begin together:
// one that began before the others had started would only wait in the middle.
func window(at Place) checkpoint.Window {
	if at.Ranks == 1 {
		return nil
	}
	w := &saidWindow{Window: at.Slabs.Window(at.Rank, at.Beat), at: at}
	if !w.Meet(0) {
		return nil
	}
	return w
}

// saidWindow is a window that says when it ends early: loading then takes longer, and
// nothing else would tell why. What a rank prints is in the supervisor's log.
type saidWindow struct {
	*transport.Window
	at    Place
	ended bool
}

// Meet is false once the ranks do not come together. In a group that ends that is no
// news.
func (w *saidWindow) Meet(tag uint64) bool {
	if w.ended {
		return false
	}
	if w.ended = !w.Window.Meet(tag); w.ended && w.at.Slabs.Err() == nil {
		fmt.Fprintf(os.Stderr, "rank %d: the ranks did not come together to load, and each reads the rest of its weights by itself\n", w.at.Rank)
	}
	return !w.ended
}

// openBackend opens what the rank computes on, with the reducer that goes with it.
func (e *Engine) openBackend(at Place, cfg *model.Config) error {
	c := &e.config
	if c.Backend == CUDA {
		open := at.open
		if open == nil {
			open = openDevice
		}
		gpu, err := open(c, at.Rank, at.Beat)
		if err != nil {
			return err
		}
		reduce := newDeviceReducer(gpu, c, cfg.Hidden)
		e.backend, e.reducer, e.graphs = gpu, reduce, newGraphs(gpu, reduce)
		return nil
	}
	isa := cpu.Auto
	if c.ISA != "" {
		var err error
		if isa, err = cpu.ParseISA(c.ISA); err != nil {
			return err
		}
	}
	backend, err := cpu.New(cpu.Config{Threads: max(c.Threads, 1), ISA: isa})
	if err != nil {
		return err
	}
	e.backend, e.reducer = backend, newReducer()
	return nil
}

func (e *Engine) loadModels(at Place, cfg model.Config, files *checkpoint.Files, p *progress) error {
	c := &e.config
	options := model.Options{
		Blocks: c.Blocks, MaxPositions: c.Context, MaxRows: c.MaxRows, WholeExperts: c.WholeExperts,
	}
	shard := model.Shard{Rank: at.Rank, Ranks: at.Ranks}
	var (
		draft eagle3.Config
		err   error
	)
	src := eagle3.Source{Target: files}
	if e.drafts() {
		if draft, err = eagle3.ReadConfig(c.Draft, &cfg, c.Captures); err != nil {
			return err
		}
		if src.Draft, err = e.openFiles(c.Draft); err != nil {
			return err
		}
		options.Captures = draft.Captures
	}
	if at.Rank < len(c.ShardBytes) {
		p.total = c.ShardBytes[at.Rank]
	}
	p.report(0, p.total)
	if e.target, _, err = load.Target(files, cfg, shard, options, e.backend, e.reducer, p.config()); err != nil {
		return err
	}
	if !e.drafts() {
		return nil
	}
	e.drafting, err = newDrafting(src, draft, &cfg, c, e.backend, checkpoint.LoadConfig{})
	return err
}

func (e *Engine) open(dir string) (model.Config, *checkpoint.Files, error) {
	cfg, err := model.ReadConfig(dir)
	if err != nil {
		return cfg, nil, err
	}
	files, err := e.openFiles(dir)
	return cfg, files, err
}

func (e *Engine) openFiles(dir string) (*checkpoint.Files, error) {
	files, err := checkpoint.Open(dir)
	if err == nil {
		e.files = append(e.files, files)
	}
	return files, err
}

// drafts says whether this rank runs the drafter.
func (e *Engine) drafts() bool { return e.config.Draft != "" && (e.rank == 0 || e.config.DraftOnAll) }

// PlanHash is what all ranks of a group must agree on before they serve: the
// build's arithmetic, the model and how it is divided.
func (c *Config) PlanHash() uint64 {
	h := fnv.New64a()
	fmt.Fprintln(h, filepath.Clean(c.Model), filepath.Clean(c.Draft), c.Captures, c.DraftOnAll, c.WholeExperts,
		c.Backend, c.Devices, c.ISA, c.Slots, c.Blocks, c.Context, c.MaxRows, c.Plan.Hash())
	return h.Sum64()
}

// progress passes on how much is loaded, and keeps the ranks together under a limit.
type progress struct {
	report func(done, total int64)
	beat   func()
	total  int64

	limit  int64
	meet   func() error // nil: loads by itself
	window checkpoint.Window
}

func (p *progress) config() checkpoint.LoadConfig {
	return checkpoint.LoadConfig{
		Limit: p.limit, Meet: p.meet, Window: p.window,
		Progress: func(done int64) {
			p.beat()
			p.report(done, p.total)
		},
	}
}
