package topology

import (
	"fmt"
	"slices"
	"strings"
)

// Binding is where one rank belongs.
type Binding struct {
	Node int  `json:"node"` // NUMA node, -1 for any
	CPUs CPUs `json:"cpus"`
}

// Assign gives each of so many ranks its processors and NUMA node. With a GPU
// for every rank, rank i goes to the node of GPU i; otherwise ranks fill the
// nodes in order. Ranks of a node share its allowed processors out evenly, or
// share them all where there are fewer processors than ranks: a rank that is held
// to one waits there for its neighbours while the other processor is idle.
func (b *Box) Assign(ranks int, allowed CPUs) []Binding {
	return b.bind(b.nodesFor(ranks), allowed)
}

// AssignGPUs is Assign for ranks whose GPUs have been chosen, by PCI address. One that
// the box does not know has no node.
func (b *Box) AssignGPUs(addresses []string, allowed CPUs) []Binding {
	nodeOf := make([]int, len(addresses))
	for rank, address := range addresses {
		nodeOf[rank] = -1
		for _, gpu := range b.GPUs() {
			if strings.EqualFold(gpu.Address, address) {
				nodeOf[rank] = gpu.Node
			}
		}
	}
	return b.bind(nodeOf, allowed)
}

func (b *Box) bind(nodeOf []int, allowed CPUs) []Binding {
	bindings := make([]Binding, len(nodeOf))
	for _, node := range b.Nodes {
		var members []int
		for rank, n := range nodeOf {
			if n == node.ID {
				members = append(members, rank)
			}
		}
		cpus := intersect(node.CPUs, allowed)
		if len(cpus) == 0 {
			cpus = allowed
		}
		for i, rank := range members {
			bindings[rank] = Binding{node.ID, share(cpus, i, len(members))}
		}
	}
	for rank, n := range nodeOf {
		if n < 0 {
			bindings[rank] = Binding{-1, allowed}
		}
	}
	return bindings
}

func (b *Box) nodesFor(ranks int) []int {
	nodeOf := make([]int, ranks)
	gpus := b.GPUs()
	for rank := range nodeOf {
		if len(gpus) >= ranks {
			nodeOf[rank] = gpus[rank].Node
			continue
		}
		nodeOf[rank] = b.Nodes[rank*len(b.Nodes)/ranks].ID
	}
	return nodeOf
}

func share(cpus CPUs, i, n int) CPUs {
	if len(cpus) < n {
		return cpus
	}
	return cpus[i*len(cpus)/n : (i+1)*len(cpus)/n]
}

func intersect(a, b CPUs) CPUs {
	var both CPUs
	for _, cpu := range a {
		if slices.Contains(b, cpu) {
			both = append(both, cpu)
		}
	}
	return both
}

// Bound reads from /proc what a process really has.
func Bound(pid int) (cpus, nodes CPUs, err error) {
	status := readText(fmt.Sprintf("/proc/%d/status", pid))
	if status == "" {
		return nil, nil, fmt.Errorf("process %d is gone", pid)
	}
	for line := range strings.Lines(status) {
		key, value, _ := strings.Cut(line, ":")
		switch key {
		case "Cpus_allowed_list":
			cpus, err = ParseCPUs(value)
		case "Mems_allowed_list":
			nodes, err = ParseCPUs(value)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return cpus, nodes, nil
}
