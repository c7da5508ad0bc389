package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/octet-run/octet/collectives/topology"
	"github.com/octet-run/octet/deploy/boxes"
)

// topoSettings are the flags of topo.
type topoSettings struct {
	sysfs, box, pids string
	ranks            int
	explain          bool
}

func newTopo() *cobra.Command {
	var s topoSettings
	cmd := &cobra.Command{
		Use:   "topo",
		Short: "Draw the box: NUMA nodes, PCIe tree, links, and what lies between its GPUs",
		Long: "With --explain also which path and which all-reduce is in use, for every pair and size, and why not the others.\n" +
			"With --json the box as JSON, which octet simulate reads.",
		Example: "  octet topo\n  octet topo --json > mybox.json\n  octet topo --explain --ranks 8\n" +
			"  octet topo --box rtx-pro-6000x8-broadcom --explain\n  octet topo --sysfs copy/of/sys",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return topo(cmd, &s) },
	}
	flags := cmd.Flags()
	flags.StringVar(&s.sysfs, "sysfs", "/sys", "sysfs tree, or a copy of one")
	flags.StringVar(&s.box, "box", "", "instead of a tree: box JSON, or one of "+strings.Join(boxes.Names(), ", "))
	flags.BoolVar(&s.explain, "explain", false, "say which path and algorithm is in use, and why not the others")
	flags.IntVar(&s.ranks, "ranks", 0, "ranks that --explain is about (default: one for each GPU, or 8)")
	flags.StringVar(&s.pids, "pids", "", "also say where these processes are bound, in rank order: 12,13")
	return cmd
}

// topoDocument is what topo prints as JSON: a box, and more where it was asked for.
type topoDocument struct {
	*topology.Box
	Explained *explanation  `json:"explained,omitempty"`
	Processes []boundStatus `json:"processes,omitempty"`
}

func topo(cmd *cobra.Command, s *topoSettings) error {
	box, here, err := s.find(cmd)
	if err != nil {
		return err
	}
	if s.ranks < 0 || s.ranks > 8 {
		return usagef("--ranks %d: a group has 1 to 8 ranks", s.ranks)
	}
	if s.ranks == 0 {
		if s.ranks = min(len(box.GPUs()), 8); s.ranks == 0 {
			s.ranks = 8
		}
	}
	var explained *explanation
	if s.explain {
		if explained, err = explain(box, s.ranks, here); err != nil {
			return err
		}
	}
	bound, err := s.bound(box)
	if err != nil {
		return err
	}
	if wantJSON(cmd) {
		return printJSON(cmd, topoDocument{box, explained, bound})
	}
	out := cmd.OutOrStdout()
	box.Draw(out)
	if explained != nil {
		explained.print(out)
	}
	return printBound(out, bound)
}

// find is the box that the flags name. here says that it is this machine.
func (s *topoSettings) find(cmd *cobra.Command) (box *topology.Box, here bool, err error) {
	if s.box != "" {
		if cmd.Flags().Changed("sysfs") {
			return nil, false, usagef("give --box or --sysfs, not both")
		}
		box, err = loadBox(s.box)
		return box, false, err
	}
	if box, err = topology.Discover(s.sysfs); err != nil {
		return nil, false, usageError{err}
	}
	return box, s.sysfs == "/sys", nil
}

// boundStatus is where a process really is bound, from /proc.
type boundStatus struct {
	PID     int              `json:"pid"`
	Rank    int              `json:"rank"`
	Wanted  topology.Binding `json:"wanted"`
	CPUs    topology.CPUs    `json:"cpus"`
	Memory  string           `json:"memory_policy"`
	Problem string           `json:"problem,omitempty"`
}

func (s *topoSettings) bound(box *topology.Box) ([]boundStatus, error) {
	if s.pids == "" {
		return nil, nil
	}
	parts := strings.Split(s.pids, ",")
	allowed, err := allowedCPUs()
	if err != nil {
		return nil, err
	}
	wanted := box.Assign(len(parts), allowed)
	var list []boundStatus
	for rank, text := range parts {
		pid, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || pid < 1 {
			return nil, usagef("--pids %q: give process numbers in rank order, such as 12,13", s.pids)
		}
		status := boundStatus{PID: pid, Rank: rank, Wanted: wanted[rank]}
		if status.CPUs, _, err = topology.Bound(pid); err != nil {
			return nil, err
		}
		if status.Memory, err = topology.MemoryPolicy(pid); err != nil {
			return nil, err
		}
		want := wanted[rank]
		if len(box.Nodes) < 2 { // one node needs no policy
			want.Node = -1
		}
		if err := want.Check(pid); err != nil {
			status.Problem = err.Error()
		}
		list = append(list, status)
	}
	return list, nil
}

func printBound(out io.Writer, list []boundStatus) error {
	if len(list) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nRANK\tPID\tCPUS\tMEMORY\tAS BOUND")
	for _, b := range list {
		verdict := "yes"
		if b.Problem != "" {
			verdict = "no: " + b.Problem
		}
		fmt.Fprintf(w, "%d\t%d\t%s\t%s\t%s\n", b.Rank, b.PID, b.CPUs, b.Memory, verdict)
	}
	return w.Flush()
}
