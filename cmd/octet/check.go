package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/octet-run/octet/collectives/topology"
	"github.com/octet-run/octet/internal/version"
	"github.com/octet-run/octet/kernels/cpu"
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/checkpoint"
)

func newCheck() *cobra.Command {
	var group groupSettings
	var shards bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say what this machine and a checkpoint are, and whether they go together",
		Long: "Prints what a bug report needs. With --shards, every slice that each rank would take of the checkpoint;\n" +
			"only headers are read.",
		Example: "  octet check\n  octet check --model llama-3-8b --ranks 4 --shards",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return check(cmd, &group, shards) },
	}
	group.register(cmd.Flags())
	cmd.Flags().BoolVar(&shards, "shards", false, "print every slice that each rank takes")
	return cmd
}

// checkReport is what octet check found.
type checkReport struct {
	Version   string            `json:"version"`
	Go        string            `json:"go"`
	CPU       string            `json:"cpu"`
	CPUs      string            `json:"cpus"`
	ISA       string            `json:"isa"`
	NUMANodes int               `json:"numa_nodes"`
	GPUs      int               `json:"gpus"`
	IOMMU     string            `json:"iommu"`
	Model     string            `json:"model"`
	Arch      string            `json:"architecture"`
	Layers    int               `json:"layers"`
	Hidden    int               `json:"hidden"`
	Vocab     int               `json:"vocab"`
	Context   int               `json:"context"`
	RankBytes []int64           `json:"rank_bytes"`
	Shards    []checkpoint.Plan `json:"shards,omitempty"`
	Advice    []string          `json:"advice"`
}

func check(cmd *cobra.Command, s *groupSettings, shards bool) error {
	if err := s.validate(); err != nil {
		return err
	}
	box, err := topology.Discover("/sys")
	if err != nil {
		return err
	}
	allowed, err := allowedCPUs()
	if err != nil {
		return err
	}
	c, err := model.ReadConfig(s.model)
	if err != nil {
		return err
	}
	if _, err := loadTokenizer(s.model, c.Vocab); err != nil {
		return err
	}
	plans, err := s.checkFiles(&c)
	if err != nil {
		return err
	}
	report := &checkReport{
		Version: version.String(), Go: runtime.Version(), CPU: box.CPU, CPUs: allowed.String(), ISA: cpu.Detect().String(),
		NUMANodes: len(box.Nodes), GPUs: len(box.GPUs()), IOMMU: box.IOMMU,
		Model: s.modelName(), Arch: c.Architecture, Layers: c.Layers, Hidden: c.Hidden, Vocab: c.Vocab, Context: c.MaxPositions,
		Advice: advice(box, allowed, s),
	}
	for _, p := range plans {
		report.RankBytes = append(report.RankBytes, p.Bytes())
	}
	if shards {
		report.Shards = plans
	}
	if wantJSON(cmd) {
		return printJSON(cmd, report)
	}
	return report.write(cmd, plans, shards)
}

func (r *checkReport) write(cmd *cobra.Command, plans []checkpoint.Plan, shards bool) error {
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "octet %s, %s\n", r.Version, r.Go)
	fmt.Fprintf(out, "processor   %s, CPUs %s, %s, %s\n", r.CPU, r.CPUs, r.ISA, countOf(r.NUMANodes, "NUMA node"))
	fmt.Fprintf(out, "GPUs        %d, IOMMU %s\n", r.GPUs, r.IOMMU)
	fmt.Fprintf(out, "model       %s: %s, %d layers, hidden %d, vocabulary %d, context %d\n", r.Model, r.Arch, r.Layers, r.Hidden, r.Vocab, r.Context)
	for rank, bytes := range r.RankBytes {
		fmt.Fprintf(out, "rank %d      %.1f MB of weights\n", rank, float64(bytes)/1e6)
		if !shards {
			continue
		}
		if err := plans[rank].Fprint(out); err != nil {
			return err
		}
	}
	for _, line := range r.Advice {
		fmt.Fprintln(out, "advice     ", line)
	}
	return nil
}

// advice is what would make this group faster or safer here.
func advice(box *topology.Box, allowed topology.CPUs, s *groupSettings) []string {
	lines := []string{}
	if len(allowed) < s.ranks {
		lines = append(lines, fmt.Sprintf("%d ranks share %d processors; --ranks %d would give each its own", s.ranks, len(allowed), len(allowed)))
	}
	if box.IOMMU == "translated" && len(box.GPUs()) > 1 {
		lines = append(lines, "the IOMMU translates: peer-to-peer goes through the root complex; boot with iommu=pt")
	}
	for i, gpu := range box.GPUs() {
		if gpu.Link != nil && gpu.Link.Degraded() {
			lines = append(lines, fmt.Sprintf("GPU %d at %s runs on %d of %d lanes: reseat the card", i, gpu.Address, gpu.Link.Width, gpu.Link.MaxWidth))
		}
	}
	if os.Getenv("GOGC") != "" {
		lines = append(lines, "GOGC is set in the environment and changes the ranks' garbage collection too")
	}
	return lines
}
