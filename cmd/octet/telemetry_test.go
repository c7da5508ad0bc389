package main

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/octet-run/octet/internal/telemetry"
	octetv1 "github.com/octet-run/octet/proto/octet/v1"
)

func TestMetricsAnswerWithTheGPUsWhileTheirStateIsCurrent(t *testing.T) {
	heard := time.Now()
	registry := prometheus.NewRegistry()
	registry.MustRegister(gpuCollector{
		latest: func() ([]telemetry.Sample, time.Time, error) {
			return []telemetry.Sample{{PCI: "0000:41:00.0", TemperatureC: 61, Replays: 7, Throttled: []string{"power cap"}}}, heard, nil
		},
		killed: func() int { return 2 },
	})
	gathered := func() map[string]float64 {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		values := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				values[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
				for _, l := range m.GetLabel() {
					if l.GetName() == "pci" && l.GetValue() != "0000:41:00.0" {
						t.Errorf("%s is labelled %s", f.GetName(), l.GetValue())
					}
				}
			}
		}
		return values
	}
	got := gathered()
	for name, want := range map[string]float64{
		"octet_gpu_temperature_celsius": 61, "octet_gpu_pcie_replays_total": 7, "octet_gpu_throttled": 1, "octet_gpu_reporter_kills_total": 2,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	heard = heard.Add(-time.Hour)
	for name := range gathered() {
		if strings.HasPrefix(name, "octet_gpu_temp") {
			t.Errorf("%s is answered an hour later", name)
		}
	}
}

func TestStatusShowsTheGPUs(t *testing.T) {
	list := gpuStatus([]telemetry.Sample{{PCI: "0000:41:00.0", LinkWidth: 8, MaxLinkWidth: 16, LastXID: 79}}, 2*time.Second)
	if len(list) != 1 || list[0].GetPci() != "0000:41:00.0" || list[0].GetLastXid() != 79 || list[0].GetAgeS() != 2 {
		t.Errorf("the status is %v", list)
	}
	called := false
	(*gpuWatch)(nil).withStatus(func(*octetv1.StatusResponse) { called = true })(&octetv1.StatusResponse{})
	if !called {
		t.Error("ranks on a CPU have no status")
	}
}
