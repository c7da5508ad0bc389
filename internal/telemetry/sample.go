package telemetry

import "time"

// Sample is one GPU at one time. What the driver does not tell is zero.
type Sample struct {
	PCI  string    `json:"pci"` // address in the form of sysfs
	Name string    `json:"name,omitempty"`
	Time time.Time `json:"time"`

	TemperatureC int    `json:"temperature_c"`
	PowerMW      uint32 `json:"power_mw,omitempty"`
	ClockMHz     uint32 `json:"clock_mhz"` // of the multiprocessors
	MaxClockMHz  uint32 `json:"max_clock_mhz"`
	// Throttled is why the clocks are below what they could be: hardware and software
	// limits of heat and power. An idle GPU is not throttled.
	Throttled []string `json:"throttled,omitempty"`

	UsedBytes  uint64 `json:"used_bytes"`
	TotalBytes uint64 `json:"total_bytes"`

	LinkGen      int `json:"link_gen"`
	LinkWidth    int `json:"link_width"`
	MaxLinkGen   int `json:"max_link_gen"`
	MaxLinkWidth int `json:"max_link_width"`
	Replays      int `json:"pcie_replays"` // packets that the link sent again, since the driver was loaded

	UncorrectedECC uint64 `json:"uncorrected_ecc"` // since the driver was loaded

	// XIDs are the critical errors since the reporter was started, and LastXID the
	// number of the last.
	XIDs    uint64 `json:"xids"`
	LastXID uint64 `json:"last_xid,omitempty"`
}

// Narrow reports a link with fewer lanes than both ends have: a loose card. A low
// generation alone means nothing, since idle links slow down.
func (s *Sample) Narrow() bool { return s.LinkWidth < s.MaxLinkWidth }

// Report is a line of the reporter: a sample a GPU, or why there is none.
type Report struct {
	GPUs  []Sample `json:"gpus,omitempty"`
	Error string   `json:"error,omitempty"`
}
