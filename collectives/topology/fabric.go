package topology

import (
	"fmt"
	"slices"
)

// Fabric is how fast the parts of a box are, as far as somebody measured it. The
// tree says what is connected; the fabric says what a byte and a flag cost on the
// way. Rates are 10^9 bytes a second of one direction, times microseconds.
type Fabric struct {
	Device *DeviceRates `json:"device,omitempty"` // of each GPU
	Paths  []PathRates  `json:"paths,omitempty"`  // by route
	// SocketGBps is what all flows from one NUMA node to another share.
	SocketGBps float64 `json:"socket_gb_s,omitempty"`
	// UplinkGBps is what all flows through one root port share, where several GPUs
	// hang below it.
	UplinkGBps float64    `json:"uplink_gb_s,omitempty"`
	Host       *HostRates `json:"host,omitempty"`
	Collapse   []Collapse `json:"collapse,omitempty"`
	CPU        *CPURates  `json:"cpu,omitempty"`
	// Fitted names the one constant that was fitted to calibration points, if any.
	// All others are measurements of their own, from the sources of the box.
	Fitted string `json:"fitted,omitempty"`
}

// DeviceRates is what a GPU costs.
type DeviceRates struct {
	GraphLaunchUS float64 `json:"graph_launch_us"` // one kernel inside a captured graph
	PlainLaunchUS float64 `json:"plain_launch_us"` // one kernel launched on its own
	PollUS        float64 `json:"poll_us"`         // from a flag's arrival to the next instruction
	PhaseUS       float64 `json:"phase_us"`        // blocks of a kernel agreeing that a phase is over
	ReduceGBps    float64 `json:"reduce_gb_s"`     // local sums: operands read and sum written
	// ConcurrentGBps is what a GPU writes to all its peers together while it drives
	// several of them; a single flow gets its path's rate.
	ConcurrentGBps float64 `json:"concurrent_gb_s"`
	MemoryGBps     float64 `json:"memory_gb_s"` // of its own memory, read by a decode pass
}

// PathRates is one flow between two GPUs with nothing else going on.
type PathRates struct {
	Route     Route   `json:"route"`
	LatencyUS float64 `json:"latency_us"` // a flag, one way
	GBps      float64 `json:"gb_s"`
}

// HostRates is the way through pinned host memory, driven by a GPU's own loads and
// stores.
type HostRates struct {
	LatencyUS  float64 `json:"latency_us"`  // a flag, one way: store until the peer's load sees it
	WriteGBps  float64 `json:"write_gb_s"`  // alone
	ReadGBps   float64 `json:"read_gb_s"`   // alone
	DuplexGBps float64 `json:"duplex_gb_s"` // each way while both go on
}

// Collapse is a regime in which posted writes of a group of GPUs fall to a small
// rate together: several of them write at once to GPUs behind several root ports.
// Reads are not affected.
type Collapse struct {
	GPUs    []int   `json:"gpus"`    // below one switch chip
	Sources int     `json:"sources"` // at least so many write at once
	Roots   int     `json:"roots"`   // to at least so many other root ports
	GBps    float64 `json:"gb_s"`    // then all their writes that leave the chip share
}

// CPURates is what ranks that are processes cost.
type CPURates struct {
	Cores    int     `json:"cores"`
	LineUS   float64 `json:"line_us"`   // a cache line from another core: a flag that is spun on
	SwitchUS float64 `json:"switch_us"` // from one runnable process to the next
	SleepUS  float64 `json:"sleep_us"`  // going to sleep on a futex
	WakeUS   float64 `json:"wake_us"`   // waking one sleeper, at the waker
	EnterUS  float64 `json:"enter_us"`  // per operation and rank: call, descriptor, checks
	ClaimUS  float64 `json:"claim_us"`  // taking and finishing one unit of work
	// Own is the rate of sums of which a core always takes the same part; Shared
	// that of chunks which go to whichever core is free, so that lines wander. By
	// rising size, the last without bound.
	Own    []Tier `json:"own"`
	Shared []Tier `json:"shared"`
	// HugePages says that slabs lie on pages of 2 MiB, not of 4 KiB.
	HugePages bool `json:"huge_pages,omitempty"`
	// TLBPages of either can be addressed without a miss; a miss costs PageUS. The
	// processes of one core compete for them.
	TLBPages   int     `json:"tlb_pages"`
	PageUS     float64 `json:"page_us"`
	MemoryGBps float64 `json:"memory_gb_s"` // all cores together
}

// Tier is how fast one core sums while what it works on fits into Bytes (0: any),
// in operands read and sums written.
type Tier struct {
	Bytes int     `json:"bytes"`
	GBps  float64 `json:"gb_s"`
}

// PathOf is the rates of a route.
func (f *Fabric) PathOf(r Route) (PathRates, bool) {
	i := slices.IndexFunc(f.Paths, func(p PathRates) bool { return p.Route == r })
	if i < 0 {
		return PathRates{}, false
	}
	return f.Paths[i], true
}

func (f *Fabric) validate(gpus int) error {
	if f.Device == nil && f.CPU == nil {
		return fmt.Errorf("the fabric says neither what a GPU nor what a CPU costs")
	}
	if f.Device != nil {
		if err := positive("device", f.Device.ReduceGBps, f.Device.ConcurrentGBps, f.Device.MemoryGBps); err != nil {
			return err
		}
	}
	for _, p := range f.Paths {
		if err := positive(fmt.Sprintf("path %s", p.Route), p.LatencyUS, p.GBps); err != nil {
			return err
		}
	}
	if h := f.Host; h != nil {
		if err := positive("host", h.LatencyUS, h.WriteGBps, h.ReadGBps, h.DuplexGBps); err != nil {
			return err
		}
	}
	for _, c := range f.Collapse {
		if err := positive("collapse", c.GBps); err != nil {
			return err
		}
		for _, g := range c.GPUs {
			if g < 0 || g >= gpus {
				return fmt.Errorf("the fabric's collapse names GPU %d of %d", g, gpus)
			}
		}
	}
	return f.CPU.validate()
}

func (c *CPURates) validate() error {
	if c == nil {
		return nil
	}
	if c.Cores < 1 || len(c.Own) == 0 || len(c.Shared) == 0 {
		return fmt.Errorf("the fabric's CPU needs cores and rates of own and shared sums")
	}
	for _, t := range slices.Concat(c.Own, c.Shared) {
		if err := positive("cache", t.GBps); err != nil {
			return err
		}
	}
	return nil
}

func positive(what string, values ...float64) error {
	for _, v := range values {
		if v <= 0 {
			return fmt.Errorf("the fabric's %s has a rate or time of %g: want more than 0", what, v)
		}
	}
	return nil
}
