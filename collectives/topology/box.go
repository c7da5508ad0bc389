package topology

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
)

// BoxVersion is the version of the JSON form.
const BoxVersion = 1

// Box is a captured topology.
type Box struct {
	Version int      `json:"version"`
	Name    string   `json:"name"`
	Sources []string `json:"sources,omitempty"` // where the facts are from, if not discovered
	CPU     string   `json:"cpu,omitempty"`     // processor model
	Nodes   []Node   `json:"nodes"`
	Roots   []Device `json:"pci,omitempty"` // host bridges that lead to a GPU
	NVLinks []NVLink `json:"nvlinks,omitempty"`
	IOMMU   string   `json:"iommu"` // off, passthrough, translated or unknown
	Driver  string   `json:"driver,omitempty"`
	Fabric  *Fabric  `json:"fabric,omitempty"` // rates, where somebody measured them
}

// Node is one NUMA node.
type Node struct {
	ID          int   `json:"id"`
	CPUs        CPUs  `json:"cpus"`
	MemoryBytes int64 `json:"memory_bytes,omitempty"`
	Distances   []int `json:"distances,omitempty"` // to each node, in node order
}

// Kinds of PCI device.
const (
	HostBridge = "host bridge"
	RootPort   = "root port"
	SwitchPort = "switch port"
	GPU        = "gpu"
)

// Device is a node of the PCI tree. Only what leads to a GPU is kept.
type Device struct {
	Address  string   `json:"address"` // domain:bus:device.function, or pciDDDD:BB
	Kind     string   `json:"kind"`
	Name     string   `json:"name,omitempty"` // model, or vendor:device
	Node     int      `json:"node"`           // NUMA node; -1 where firmware does not say
	Link     *Link    `json:"link,omitempty"` // the link towards the root
	ACS      string   `json:"acs,omitempty"`  // bridges: redirects, off, none or unknown
	Children []Device `json:"children,omitempty"`
}

// Link is a PCIe link: what it runs at and what it could.
type Link struct {
	GTs      float64 `json:"gt_s"`
	Width    int     `json:"width"`
	MaxGTs   float64 `json:"max_gt_s"`
	MaxWidth int     `json:"max_width"`
}

// GBps is the payload rate of one direction in 10^9 bytes a second, before
// packet overhead.
func (l Link) GBps() float64 { return rate(l.GTs, l.Width) }

// MaxGBps is the same at the best that both ends can do.
func (l Link) MaxGBps() float64 { return rate(l.MaxGTs, l.MaxWidth) }

// Degraded reports a link that runs below what it could. GPUs lower the speed of
// an idle link, so a low speed alone means something only under load; a narrow
// link is a loose card.
func (l Link) Degraded() bool { return l.Width < l.MaxWidth }

func rate(gts float64, width int) float64 {
	encoding := 128.0 / 130
	if gts <= 5 {
		encoding = 0.8
	}
	return gts * float64(width) * encoding / 8
}

// NVLink is the NVLink connection of two GPUs, by index.
type NVLink struct {
	A     int     `json:"a"`
	B     int     `json:"b"`
	Links int     `json:"links"`
	GBps  float64 `json:"gb_s"` // per direction, all links together
}

// GPUs lists the GPUs in PCI address order, which is the order of their indices.
func (b *Box) GPUs() []Device {
	var list []Device
	for _, root := range b.Roots {
		list = append(list, gpusBelow(root)...)
	}
	slices.SortFunc(list, func(x, y Device) int { return compareAddress(x.Address, y.Address) })
	return list
}

func gpusBelow(d Device) []Device {
	if d.Kind == GPU {
		return []Device{d}
	}
	var list []Device
	for _, child := range d.Children {
		list = append(list, gpusBelow(child)...)
	}
	return list
}

func compareAddress(x, y string) int {
	if len(x) != len(y) {
		return len(x) - len(y) // a longer PCI domain sorts last
	}
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// Islands groups the GPUs, by index, by the NUMA node they hang off, nodes in
// order of their first GPU. A box without GPUs has none.
func (b *Box) Islands() [][]int {
	var islands [][]int
	index := map[int]int{}
	for i, gpu := range b.GPUs() {
		at, seen := index[gpu.Node]
		if !seen {
			at = len(islands)
			index[gpu.Node] = at
			islands = append(islands, nil)
		}
		islands[at] = append(islands[at], i)
	}
	return islands
}

// Write writes the box as indented JSON.
func (b *Box) Write(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(b)
}

// ReadFile reads and checks a box.
func ReadFile(path string) (*Box, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	box, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return box, nil
}

// Parse reads and checks a box.
func Parse(data []byte) (*Box, error) {
	var box Box
	if err := json.Unmarshal(data, &box); err != nil {
		return nil, fmt.Errorf("not a box: %w", err)
	}
	if err := box.validate(); err != nil {
		return nil, err
	}
	return &box, nil
}

func (b *Box) validate() error {
	if b.Version != BoxVersion {
		return fmt.Errorf("box version is %d, this program reads %d", b.Version, BoxVersion)
	}
	if len(b.Nodes) == 0 {
		return fmt.Errorf("the box has no NUMA node")
	}
	ids := map[int]bool{-1: true}
	for _, n := range b.Nodes {
		if ids[n.ID] {
			return fmt.Errorf("NUMA node %d is given twice or is not a number from 0 up", n.ID)
		}
		ids[n.ID] = true
		if len(n.Distances) != 0 && len(n.Distances) != len(b.Nodes) {
			return fmt.Errorf("NUMA node %d has %d distances for %d nodes", n.ID, len(n.Distances), len(b.Nodes))
		}
	}
	gpus := b.GPUs()
	for i, gpu := range gpus {
		if !ids[gpu.Node] {
			return fmt.Errorf("GPU %s is on NUMA node %d, which the box does not have", gpu.Address, gpu.Node)
		}
		if i > 0 && gpus[i-1].Address == gpu.Address {
			return fmt.Errorf("GPU %s is given twice", gpu.Address)
		}
	}
	for _, l := range b.NVLinks {
		if l.A == l.B || min(l.A, l.B) < 0 || max(l.A, l.B) >= len(gpus) {
			return fmt.Errorf("an NVLink joins GPUs %d and %d of %d", l.A, l.B, len(gpus))
		}
	}
	if b.Fabric != nil {
		return b.Fabric.validate(len(gpus))
	}
	return nil
}

// RootPortOf is the address of the root port above a GPU, or of its host bridge
// where it has none.
func (b *Box) RootPortOf(gpu int) string {
	path := b.pathTo(b.GPUs()[gpu].Address)
	return path[min(1, len(path)-1)].Address
}
