package boxsim

import (
	"fmt"
	"slices"

	"github.com/octet-run/octet/collectives/topology"
)

// wires are the links between the GPUs of a box.
type wires struct {
	box    *topology.Box
	fabric *topology.Fabric
	host   bool
	share  float64 // of all rates
	paths  [][]topology.PathRates

	up, down   []*link // a GPU's own link
	hostUp     []*link // stores to host memory
	hostDown   []*link
	duplex     []*link // both at once
	concurrent []*link // a GPU's stores to several peers
	sockets    map[[2]int]*link
	uplinks    map[[2]string]*link // direction and root port
	collapsed  []*link
	nodes      []int
	roots      []string
	crowded    map[string]bool // root ports above several GPUs
}

func newWires(c *Config) (*wires, error) {
	f, n := c.Box.Fabric, c.ranks()
	w := &wires{
		box: c.Box, fabric: f, host: c.Stack.Host, share: c.Stack.Share,
		sockets: map[[2]int]*link{}, uplinks: map[[2]string]*link{}, crowded: map[string]bool{},
	}
	if w.share == 0 {
		w.share = 1
	}
	if w.host && f.Host == nil {
		return nil, fmt.Errorf("box %s says nothing about the way through host memory, which %s takes", c.Box.Name, c.Stack.Name)
	}
	gpus := c.Box.GPUs()[:n]
	for i, gpu := range gpus {
		w.nodes = append(w.nodes, gpu.Node)
		root := c.Box.RootPortOf(i)
		w.crowded[root] = w.crowded[root] || slices.Contains(w.roots, root)
		w.roots = append(w.roots, root)
	}
	for i := range gpus {
		row := make([]topology.PathRates, n)
		var widest float64
		for j := range gpus {
			if i == j {
				continue
			}
			route := c.Box.RouteOf(i, j)
			path, known := f.PathOf(route)
			if !known {
				return nil, fmt.Errorf("box %s has no rates for route %s, by which GPUs %d and %d reach each other", c.Box.Name, route, i, j)
			}
			row[j] = path
			widest = max(widest, path.GBps)
		}
		w.paths = append(w.paths, row)
		w.up = append(w.up, &link{widest})
		w.down = append(w.down, &link{widest})
		w.concurrent = append(w.concurrent, &link{f.Device.ConcurrentGBps})
		if f.Host != nil {
			w.hostUp = append(w.hostUp, &link{f.Host.WriteGBps * w.share})
			w.hostDown = append(w.hostDown, &link{f.Host.ReadGBps * w.share})
			w.duplex = append(w.duplex, &link{2 * f.Host.DuplexGBps * w.share})
		}
	}
	for _, c := range f.Collapse {
		w.collapsed = append(w.collapsed, &link{c.GBps})
	}
	return w, nil
}

// latency is a flag's time from one rank to another.
func (w *wires) latency(from, to int) float64 {
	if !w.host {
		return w.paths[from][to].LatencyUS
	}
	us := w.fabric.Host.LatencyUS
	if w.nodes[from] != w.nodes[to] { // the memory is local to one of them
		near, _ := w.fabric.PathOf(topology.SameNode)
		us += w.paths[from][to].LatencyUS - near.LatencyUS
	}
	return us
}

// flow is a transfer from one GPU's memory to another's.
func (w *wires) flow(from, to int, bytes float64) *flow {
	f := &flow{from: from, to: to, left: bytes}
	if w.host { // stored and loaded at the same time
		f.cap = min(w.fabric.Host.WriteGBps, w.fabric.Host.ReadGBps) * w.share
		f.links = []*link{w.hostUp[from], w.hostDown[to], w.duplex[from], w.duplex[to]}
		return f
	}
	f.cap = w.paths[from][to].GBps * w.share
	f.links = []*link{w.up[from], w.down[to]}
	route := w.box.RouteOf(from, to)
	if route == topology.ByNVLink {
		return f
	}
	f.posted = true
	if w.roots[from] != w.roots[to] && w.fabric.UplinkGBps > 0 {
		f.links = append(f.links, w.uplink("up", from)...)
		f.links = append(f.links, w.uplink("down", to)...)
	}
	if w.nodes[from] != w.nodes[to] && w.fabric.SocketGBps > 0 {
		key := [2]int{w.nodes[from], w.nodes[to]}
		if w.sockets[key] == nil {
			w.sockets[key] = &link{w.fabric.SocketGBps}
		}
		f.links = append(f.links, w.sockets[key])
	}
	return f
}

func (w *wires) uplink(direction string, gpu int) []*link {
	if !w.crowded[w.roots[gpu]] {
		return nil
	}
	key := [2]string{direction, w.roots[gpu]}
	if w.uplinks[key] == nil {
		w.uplinks[key] = &link{w.fabric.UplinkGBps}
	}
	return []*link{w.uplinks[key]}
}

// toHost and fromHost are the two halves of a transfer through host memory, one
// after the other.
func (w *wires) toHost(from, to int, bytes float64) *flow {
	return &flow{from: from, to: to, left: bytes, cap: w.fabric.Host.WriteGBps, links: []*link{w.hostUp[from], w.duplex[from]}}
}

func (w *wires) fromHost(from, to int, bytes float64) *flow {
	return &flow{from: from, to: to, left: bytes, cap: w.fabric.Host.ReadGBps, links: []*link{w.hostDown[to], w.duplex[to]}}
}

// regimes are the links that a flow shares because of what else is going on: its
// GPU drives several peers, or its switch has collapsed.
func (w *wires) regimes(f *flow, flows []*flow) []*link {
	if !f.posted {
		return nil
	}
	var links []*link
	for _, other := range flows {
		if other.posted && other.from == f.from && other.to != f.to {
			links = append(links, w.concurrent[f.from])
			break
		}
	}
	for i, c := range w.fabric.Collapse {
		if w.leaves(f, c) && w.collapses(c, flows) {
			links = append(links, w.collapsed[i])
		}
	}
	return links
}

// leaves reports whether a flow is a posted write from a switch chip through its
// root port to another chip.
func (w *wires) leaves(f *flow, c topology.Collapse) bool {
	return f.posted && slices.Contains(c.GPUs, f.from) && !slices.Contains(c.GPUs, f.to)
}

func (w *wires) collapses(c topology.Collapse, flows []*flow) bool {
	var sources []int
	var roots []string
	for _, f := range flows {
		if !w.leaves(f, c) {
			continue
		}
		if !slices.Contains(sources, f.from) {
			sources = append(sources, f.from)
		}
		if !slices.Contains(roots, w.roots[f.to]) {
			roots = append(roots, w.roots[f.to])
		}
	}
	return len(sources) >= c.Sources && len(roots) >= c.Roots
}
