package topology

// Route is what lies between two GPUs, nearest first.
type Route string

// The routes. The short names are those of `nvidia-smi topo`.
const (
	Self      Route = "X"
	ByNVLink  Route = "NV"
	OneSwitch Route = "PIX"  // one PCIe switch
	Switches  Route = "PXB"  // several switches, no host bridge
	HostLocal Route = "PHB"  // through one host bridge
	SameNode  Route = "NODE" // between host bridges of a NUMA node
	CrossNode Route = "SYS"  // between NUMA nodes
)

// RouteOf says what lies between GPUs i and j.
func (b *Box) RouteOf(i, j int) Route {
	if i == j {
		return Self
	}
	for _, l := range b.NVLinks {
		if (l.A == i && l.B == j) || (l.A == j && l.B == i) {
			return ByNVLink
		}
	}
	gpus := b.GPUs()
	x, y := b.pathTo(gpus[i].Address), b.pathTo(gpus[j].Address)
	if x[0].Address != y[0].Address {
		if gpus[i].Node == gpus[j].Node {
			return SameNode
		}
		return CrossNode
	}
	shared := 0
	for shared < len(x) && shared < len(y) && x[shared].Address == y[shared].Address {
		shared++
	}
	if shared <= 1 {
		return HostLocal
	}
	// The deepest shared device is a port of the switch (or root port) below which
	// the two part. A switch is an upstream port and the downstream ports under it.
	if len(x)-shared <= 2 && len(y)-shared <= 2 {
		return OneSwitch
	}
	return Switches
}

// pathTo lists the devices from the host bridge down to the GPU.
func (b *Box) pathTo(address string) []Device {
	var find func(d Device) []Device
	find = func(d Device) []Device {
		if d.Address == address {
			return []Device{d}
		}
		for _, child := range d.Children {
			if below := find(child); below != nil {
				return append([]Device{d}, below...)
			}
		}
		return nil
	}
	for _, root := range b.Roots {
		if path := find(root); path != nil {
			return path
		}
	}
	return nil
}
