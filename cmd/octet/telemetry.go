package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/octet-run/octet/internal/telemetry"
	octetv1 "github.com/octet-run/octet/proto/octet/v1"
)

// telemetryInterval is how often GPUs are looked at.
const telemetryInterval = time.Second

// newRankTelemetry is the process that asks the driver how the GPUs are.
func newRankTelemetry() *cobra.Command {
	return &cobra.Command{
		Use: "telemetry [PCI ADDRESS]...", Hidden: true,
		Short: "Print the health of GPUs every second (started by octet serve)",
		RunE: func(cmd *cobra.Command, addresses []string) error {
			return telemetry.Run(cmd.Context(), cmd.OutOrStdout(), telemetryInterval, addresses)
		},
	}
}

// gpuWatch is the health of the ranks' GPUs; nil for ranks on a CPU.
type gpuWatch struct{ watch *telemetry.Watch }

// watchGPUs starts to look at the GPUs at some addresses, if there are any.
func watchGPUs(addresses []string) (*gpuWatch, error) {
	if len(addresses) == 0 {
		return nil, nil
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	addresses = slices.Clone(addresses)
	slices.Sort(addresses)
	arguments := append([]string{"rank", "telemetry"}, slices.Compact(addresses)...)
	watch, err := telemetry.NewWatch(telemetry.Config{
		Limit:   10 * telemetryInterval,
		Command: func(ctx context.Context) *exec.Cmd { return exec.CommandContext(ctx, exe, arguments...) },
	})
	if err != nil {
		return nil, err
	}
	return &gpuWatch{watch}, nil
}

func (g *gpuWatch) close() {
	if g != nil {
		g.watch.Close()
	}
}

// withStatus adds the GPUs to what status answers.
func (g *gpuWatch) withStatus(status func(*octetv1.StatusResponse)) func(*octetv1.StatusResponse) {
	if g == nil {
		return status
	}
	return func(s *octetv1.StatusResponse) {
		status(s)
		gpus, heard, err := g.watch.Latest()
		s.Gpus = gpuStatus(gpus, time.Since(heard))
		if err != nil {
			s.GpusError = err.Error()
		}
	}
}

func gpuStatus(gpus []telemetry.Sample, age time.Duration) []*octetv1.GPUStatus {
	var list []*octetv1.GPUStatus
	for _, s := range gpus {
		list = append(list, &octetv1.GPUStatus{
			Pci: s.PCI, Name: s.Name, TemperatureC: int32(s.TemperatureC), ClockMhz: s.ClockMHz, MaxClockMhz: s.MaxClockMHz,
			Throttled: s.Throttled, LinkGen: int32(s.LinkGen), LinkWidth: int32(s.LinkWidth), MaxLinkWidth: int32(s.MaxLinkWidth),
			PcieReplays: uint64(s.Replays), UncorrectedEcc: s.UncorrectedECC, Xids: s.XIDs, LastXid: s.LastXID,
			UsedBytes: s.UsedBytes, TotalBytes: s.TotalBytes, AgeS: age.Seconds(),
		})
	}
	return list
}

// gpuDocuments is the GPUs' part of the status as JSON.
func gpuDocuments(s *octetv1.StatusResponse) []map[string]any {
	list := []map[string]any{}
	for _, g := range s.GetGpus() {
		list = append(list, map[string]any{
			"pci": g.GetPci(), "name": g.GetName(), "temperature_c": g.GetTemperatureC(), "clock_mhz": g.GetClockMhz(),
			"max_clock_mhz": g.GetMaxClockMhz(), "throttled": g.GetThrottled(), "link_gen": g.GetLinkGen(), "link_width": g.GetLinkWidth(),
			"max_link_width": g.GetMaxLinkWidth(), "pcie_replays": g.GetPcieReplays(), "uncorrected_ecc": g.GetUncorrectedEcc(),
			"xids": g.GetXids(), "last_xid": g.GetLastXid(), "used_bytes": g.GetUsedBytes(), "total_bytes": g.GetTotalBytes(), "age_s": g.GetAgeS(),
		})
	}
	return list
}

// drawGPUs is the GPUs' part of the status as a table.
func drawGPUs(w io.Writer, s *octetv1.StatusResponse) {
	if reason := s.GetGpusError(); reason != "" {
		fmt.Fprintf(w, "\nGPUs: %s\n", reason)
	}
	if len(s.GetGpus()) == 0 {
		return
	}
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "GPU\tNAME\tdeg C\tMHz\tHELD DOWN BY\tPCIe\tREPLAYS\tECC\tXIDs\tMEMORY GB")
	for _, g := range s.GetGpus() {
		fmt.Fprintf(table, "%s\t%s\t%d\t%d of %d\t%s\tgen %d x%d of x%d\t%d\t%d\t%d\t%.1f of %.1f\n", g.GetPci(), g.GetName(), g.GetTemperatureC(),
			g.GetClockMhz(), g.GetMaxClockMhz(), strings.Join(g.GetThrottled(), ", "), g.GetLinkGen(), g.GetLinkWidth(), g.GetMaxLinkWidth(),
			g.GetPcieReplays(), g.GetUncorrectedEcc(), g.GetXids(), float64(g.GetUsedBytes())/1e9, float64(g.GetTotalBytes())/1e9)
	}
	_ = table.Flush()
}

func (g *gpuWatch) collectors() []prometheus.Collector {
	if g == nil {
		return nil
	}
	return []prometheus.Collector{gpuCollector{g.watch.Latest, g.watch.Killed}}
}

// gpuCollector answers with the last sample of each GPU, and with none once it is old.
type gpuCollector struct {
	latest func() ([]telemetry.Sample, time.Time, error)
	killed func() int
}

// gpuMetrics are a GPU's numbers.
var gpuMetrics = []struct {
	name, help string
	kind       prometheus.ValueType
	of         func(*telemetry.Sample) float64
}{
	{"octet_gpu_temperature_celsius", "Temperature of the GPU.", prometheus.GaugeValue, func(s *telemetry.Sample) float64 { return float64(s.TemperatureC) }},
	{"octet_gpu_power_watts", "Power that the GPU draws.", prometheus.GaugeValue, func(s *telemetry.Sample) float64 { return float64(s.PowerMW) / 1e3 }},
	{"octet_gpu_clock_mhz", "Clock of the multiprocessors.", prometheus.GaugeValue, func(s *telemetry.Sample) float64 { return float64(s.ClockMHz) }},
	{"octet_gpu_throttled", "Number of reasons that hold the clocks down.", prometheus.GaugeValue, func(s *telemetry.Sample) float64 { return float64(len(s.Throttled)) }},
	{"octet_gpu_memory_used_bytes", "Memory in use.", prometheus.GaugeValue, func(s *telemetry.Sample) float64 { return float64(s.UsedBytes) }},
	{"octet_gpu_pcie_link_width", "Lanes of the PCIe link.", prometheus.GaugeValue, func(s *telemetry.Sample) float64 { return float64(s.LinkWidth) }},
	{"octet_gpu_pcie_link_generation", "Generation that the PCIe link runs at.", prometheus.GaugeValue, func(s *telemetry.Sample) float64 { return float64(s.LinkGen) }},
	{"octet_gpu_pcie_replays_total", "Packets that the PCIe link sent again.", prometheus.CounterValue, func(s *telemetry.Sample) float64 { return float64(s.Replays) }},
	{"octet_gpu_uncorrected_ecc_total", "Memory errors that were not corrected.", prometheus.CounterValue, func(s *telemetry.Sample) float64 { return float64(s.UncorrectedECC) }},
	{"octet_gpu_xids_total", "Critical errors that the driver reported.", prometheus.CounterValue, func(s *telemetry.Sample) float64 { return float64(s.XIDs) }},
}

var reporterKills = prometheus.NewDesc("octet_gpu_reporter_kills_total", "Telemetry processes that hung and were killed.", nil, nil)

// staleAfter is the age from which a sample is not answered.
const staleAfter = 30 * time.Second

// Describe is empty: which GPUs there are is not known in advance.
func (gpuCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c gpuCollector) Collect(out chan<- prometheus.Metric) {
	out <- prometheus.MustNewConstMetric(reporterKills, prometheus.CounterValue, float64(c.killed()))
	gpus, heard, _ := c.latest()
	if time.Since(heard) > staleAfter {
		return
	}
	for i := range gpus {
		for _, m := range gpuMetrics {
			desc := prometheus.NewDesc(m.name, m.help, []string{"pci"}, nil)
			out <- prometheus.MustNewConstMetric(desc, m.kind, m.of(&gpus[i]), gpus[i].PCI)
		}
	}
}
