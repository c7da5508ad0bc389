//go:build cgo && cuda

package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
)

func pciInfo(id string) nvml.PciInfo {
	var info nvml.PciInfo
	for i, c := range []byte(id) {
		info.BusId[i] = int8(c)
	}
	return info
}

// hot is a GPU in trouble: hot, on half a link, with an XID to come.
func hot() *mock.Device {
	return &mock.Device{
		GetNameFunc:    func() (string, nvml.Return) { return "NVIDIA H200", nvml.SUCCESS },
		GetPciInfoFunc: func() (nvml.PciInfo, nvml.Return) { return pciInfo("00000000:AF:00.0"), nvml.SUCCESS },
		GetTemperatureFunc: func(nvml.TemperatureSensors) (uint32, nvml.Return) {
			return 91, nvml.SUCCESS
		},
		GetPowerUsageFunc:   func() (uint32, nvml.Return) { return 700000, nvml.SUCCESS },
		GetClockInfoFunc:    func(nvml.ClockType) (uint32, nvml.Return) { return 1200, nvml.SUCCESS },
		GetMaxClockInfoFunc: func(nvml.ClockType) (uint32, nvml.Return) { return 1980, nvml.SUCCESS },
		GetCurrentClocksEventReasonsFunc: func() (uint64, nvml.Return) {
			return nvml.ClocksThrottleReasonHwThermalSlowdown | nvml.ClocksEventReasonSwPowerCap, nvml.SUCCESS
		},
		GetMemoryInfoFunc:             func() (nvml.Memory, nvml.Return) { return nvml.Memory{Used: 5, Total: 9}, nvml.SUCCESS },
		GetCurrPcieLinkGenerationFunc: func() (int, nvml.Return) { return 5, nvml.SUCCESS },
		GetCurrPcieLinkWidthFunc:      func() (int, nvml.Return) { return 8, nvml.SUCCESS },
		GetMaxPcieLinkGenerationFunc:  func() (int, nvml.Return) { return 5, nvml.SUCCESS },
		GetMaxPcieLinkWidthFunc:       func() (int, nvml.Return) { return 16, nvml.SUCCESS },
		GetPcieReplayCounterFunc:      func() (int, nvml.Return) { return 1234, nvml.SUCCESS },
		GetTotalEccErrorsFunc: func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
			return 0, nvml.ERROR_NOT_SUPPORTED
		},
		RegisterEventsFunc: func(uint64, nvml.EventSet) nvml.Return { return nvml.SUCCESS },
	}
}

func TestTheReporterTellsWhatTheDriverDoes(t *testing.T) {
	device := hot()
	ctx, cancel := context.WithCancel(t.Context())
	waits := 0
	events := &mock.EventSet{
		WaitFunc: func(uint32) (nvml.EventData, nvml.Return) {
			if waits++; waits == 1 {
				return nvml.EventData{Device: device, EventType: nvml.EventTypeXidCriticalError, EventData: 79}, nvml.SUCCESS
			}
			return nvml.EventData{}, nvml.ERROR_TIMEOUT
		},
		FreeFunc: func() nvml.Return { return nvml.SUCCESS },
	}
	library := &mock.Interface{
		InitFunc:                   func() nvml.Return { return nvml.SUCCESS },
		ShutdownFunc:               func() nvml.Return { return nvml.SUCCESS },
		DeviceGetCountFunc:         func() (int, nvml.Return) { return 1, nvml.SUCCESS },
		DeviceGetHandleByIndexFunc: func(int) (nvml.Device, nvml.Return) { return device, nvml.SUCCESS },
		EventSetCreateFunc:         func() (nvml.EventSet, nvml.Return) { return events, nvml.SUCCESS },
	}
	out := &stopAfter{lines: 2, cancel: cancel}
	if err := run(ctx, library, out, time.Millisecond, nil); err != nil {
		t.Fatal(err)
	}
	var last Report
	lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
	if err := json.Unmarshal(lines[len(lines)-1], &last); err != nil {
		t.Fatal(err)
	}
	got := last.GPUs[0]
	got.Time = time.Time{}
	if !slices.Equal(got.Throttled, []string{"power cap", "heat, by hardware"}) || !got.Narrow() {
		t.Errorf("throttled by %q, narrow %v", got.Throttled, got.Narrow())
	}
	got.Throttled = nil
	want := Sample{
		PCI: "0000:af:00.0", Name: "NVIDIA H200", TemperatureC: 91, PowerMW: 700000, ClockMHz: 1200, MaxClockMHz: 1980, UsedBytes: 5,
		TotalBytes: 9, LinkGen: 5, LinkWidth: 8, MaxLinkGen: 5, MaxLinkWidth: 16, Replays: 1234, XIDs: 1, LastXID: 79,
	}
	if !equal(got, want) {
		t.Errorf("the sample is %+v, want %+v", got, want)
	}
}

func equal(a, b Sample) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y)
}

// stopAfter ends a reporter when it has printed so many lines.
type stopAfter struct {
	bytes.Buffer
	lines  int
	cancel func()
}

func (s *stopAfter) Write(p []byte) (int, error) {
	if s.lines--; s.lines <= 0 {
		s.cancel()
	}
	return s.Buffer.Write(p)
}

func TestADriverThatRefusesIsToldInOneLine(t *testing.T) {
	var out bytes.Buffer
	library := &mock.Interface{InitFunc: func() nvml.Return { return nvml.ERROR_LIBRARY_NOT_FOUND }}
	if err := run(t.Context(), library, &out, time.Second, nil); err == nil {
		t.Error("the reporter ended well")
	}
	var said Report
	if err := json.Unmarshal(out.Bytes(), &said); err != nil || !strings.Contains(said.Error, "open the management library") {
		t.Errorf("the reporter printed %q", out.String())
	}
}
