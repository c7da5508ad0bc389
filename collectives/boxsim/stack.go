package boxsim

import (
	"fmt"
	"strings"
)

// Stack is an implementation of all-reduce: which programs it runs, and what their
// steps do not say. Its constants are measurements; none is fitted.
type Stack struct {
	Name    string
	Summary string
	// Algorithms are the programs; the fastest is taken.
	Algorithms []string
	// Unbounded ignores the sizes that our algorithms admit.
	Unbounded bool
	// Exact says that the sum has the bits of our contract.
	Exact bool

	WireBytes   int // of an element of a partial or a sum
	IslandBytes int // of an element of an island's partial sum
	Flags       Flags
	FlagBytes   float64 // bytes on the wire per byte of data with flags in it
	Host        bool    // through pinned host memory, not from peer to peer
	Plain       bool    // launched on its own, not inside a graph
	Barriers    int     // rounds of flags around the program
	Streamed    bool    // sums go on while data arrives, without phases
	BaseUS      float64 // per call, besides the launch
	StepUS      float64 // per Wait that has to wait
	// Share is the part of the rates that its few blocks get; 0 means all.
	Share float64
}

// Flags is how flags travel.
type Flags uint8

const (
	// AsProgram is in the data of packets, after the data of other puts.
	AsProgram Flags = iota
	// InData is in the data of every put, as packets or as values that cannot occur.
	InData
	// AfterData is on their own, once the data is acknowledged.
	AfterData
)

// inData reports whether a put carries its flags.
func (s *Stack) inData(packet bool) bool {
	return s.Flags == InData || s.Flags == AsProgram && packet
}

// The costs of NCCL 2.28, from its calls between two H200s at 14 KB: what is left of
// 7.9 us after a launch and two hops of NVLink, and what a hop takes besides the
// path, the same way from 12.6 us through host memory.
const (
	ncclBaseUS     = 4.6
	ncclStepUS     = 0.35
	ncclHostStepUS = 0.85
	// ncclShare: 16 to 18 GB/s of the 34.5 that all SMs drive through host memory.
	ncclShare = 0.5
)

// Stacks lists all of them. The first is ours.
func Stacks() []Stack {
	packet := Stack{Algorithms: []string{"packets"}, Unbounded: true, WireBytes: 2, IslandBytes: 4, FlagBytes: 2}
	with := func(s Stack, name, summary string, change func(*Stack)) Stack {
		s.Name, s.Summary = name, summary
		change(&s)
		return s
	}
	return []Stack{
		{
			Name: "octet", Summary: "our exact algorithms, in a graph", Exact: true,
			Algorithms: []string{"central", "one-shot", "packets", "shared two-shot", "two-shot", "hierarchical", "pipelined hierarchical"},
			WireBytes:  2, IslandBytes: 4, FlagBytes: 2,
		},
		{
			Name: "octet-host", Summary: "our exact algorithms through host memory, in a graph", Exact: true,
			Algorithms: []string{"packets", "two-shot", "hierarchical", "pipelined hierarchical"},
			WireBytes:  2, IslandBytes: 4, FlagBytes: 2, Host: true,
		},
		with(packet, "packets-ll", "one-shot, 4 bytes of flag with 4 of data, in a graph", func(*Stack) {}),
		with(packet, "host-ll", "the same through host memory", func(s *Stack) { s.Host = true }),
		with(packet, "host-flags", "one-shot through host memory, flags after the data", func(s *Stack) { s.Host, s.Flags, s.FlagBytes = true, AfterData, 1 }),
		with(packet, "one-stage", "one-shot between two barriers, launched on its own (vLLM, SGLang, p2pmark)", func(s *Stack) { s.FlagBytes, s.Plain, s.Barriers = 1, true, 2 }),
		{
			Name: "island-sentinel", Summary: "FlashInfer pcie_ipc: one-shot or two islands, flags are values in the data, in a graph",
			Algorithms: []string{"packets", "hierarchical"}, Unbounded: true,
			WireBytes: 2, IslandBytes: 2, FlagBytes: 1, Flags: InData,
		},
		{
			Name: "nccl", Summary: "NCCL ring from peer to peer, tuned, in a graph",
			Algorithms: []string{"ring"}, WireBytes: 2, IslandBytes: 2, FlagBytes: 16.0 / 15, Flags: InData,
			Streamed: true, BaseUS: ncclBaseUS, StepUS: ncclStepUS,
		},
		{
			Name: "nccl-host", Summary: "NCCL ring through host memory, its default on PCIe across sockets, in a graph",
			Algorithms: []string{"ring"}, WireBytes: 2, IslandBytes: 2, FlagBytes: 16.0 / 15, Flags: InData, Host: true,
			Streamed: true, BaseUS: ncclBaseUS, StepUS: ncclHostStepUS, Share: ncclShare,
		},
		{
			Name: "nccl-spread", Summary: "NCCL with rings over all pairs, in a graph",
			Algorithms: []string{"two-shot"}, WireBytes: 2, IslandBytes: 2, FlagBytes: 16.0 / 15, Flags: InData,
			Streamed: true, BaseUS: ncclBaseUS + 12*(1+ncclStepUS), StepUS: ncclStepUS,
		},
	}
}

// FindStack is the stack of a name.
func FindStack(name string) (Stack, error) {
	var names []string
	for _, s := range Stacks() {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return Stack{}, fmt.Errorf("no stack is called %q; there are %s", name, strings.Join(names, ", "))
}
