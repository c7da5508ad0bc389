//go:build cgo && cuda

package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Run is the reporter: it prints a Report every interval until ctx ends, of the GPUs
// at the given PCI addresses, or of all.
func Run(ctx context.Context, out io.Writer, interval time.Duration, addresses []string) error {
	return run(ctx, nvml.New(), out, interval, addresses)
}

func run(ctx context.Context, library nvml.Interface, out io.Writer, interval time.Duration, addresses []string) error {
	lines := json.NewEncoder(out)
	if ret := library.Init(); ret != nvml.SUCCESS {
		return errors.Join(lines.Encode(Report{Error: failure("open the management library", ret).Error()}), failure("open the management library", ret))
	}
	defer library.Shutdown()
	r, err := newReader(library, addresses)
	if err != nil {
		return errors.Join(lines.Encode(Report{Error: err.Error()}), err)
	}
	defer r.close()
	for {
		if err := lines.Encode(r.report(time.Now())); err != nil {
			return err // nobody listens
		}
		r.listen(ctx, interval)
		if ctx.Err() != nil {
			return nil
		}
	}
}

// reader samples some GPUs.
type reader struct {
	devices []watched
	events  nvml.EventSet // nil where the driver has none
}

type watched struct {
	nvml.Device
	address string
	name    string
	xids    uint64
	lastXID uint64
}

func newReader(library nvml.Interface, addresses []string) (*reader, error) {
	r := &reader{}
	if len(addresses) == 0 {
		n, ret := library.DeviceGetCount()
		if ret != nvml.SUCCESS {
			return nil, failure("count the GPUs", ret)
		}
		for i := range n {
			device, ret := library.DeviceGetHandleByIndex(i)
			if ret != nvml.SUCCESS {
				return nil, failure(fmt.Sprintf("open GPU %d", i), ret)
			}
			r.add(device)
		}
	}
	for _, address := range addresses {
		device, ret := library.DeviceGetHandleByPciBusId(address)
		if ret != nvml.SUCCESS {
			return nil, failure("open the GPU at "+address, ret)
		}
		r.add(device)
	}
	r.register(library)
	return r, nil
}

func (r *reader) add(device nvml.Device) {
	w := watched{Device: device}
	w.name, _ = device.GetName()
	if info, ret := device.GetPciInfo(); ret == nvml.SUCCESS {
		w.address = address(info)
	}
	r.devices = append(r.devices, w)
}

// register asks to be told of critical errors.
func (r *reader) register(library nvml.Interface) {
	set, ret := library.EventSetCreate()
	if ret != nvml.SUCCESS {
		return
	}
	for _, d := range r.devices {
		d.RegisterEvents(nvml.EventTypeXidCriticalError|nvml.EventTypeDoubleBitEccError, set)
	}
	r.events = set
}

func (r *reader) close() {
	if r.events != nil {
		r.events.Free()
	}
}

// listen passes the time until the next report, and counts critical errors.
func (r *reader) listen(ctx context.Context, interval time.Duration) {
	const slice = 100 * time.Millisecond
	for end := time.Now().Add(interval); ctx.Err() == nil && time.Now().Before(end); {
		if r.events == nil {
			time.Sleep(min(slice, time.Until(end)))
			continue
		}
		event, ret := r.events.Wait(uint32(slice / time.Millisecond))
		switch {
		case ret == nvml.ERROR_TIMEOUT:
		case ret != nvml.SUCCESS:
			time.Sleep(min(slice, time.Until(end)))
		case event.EventType&nvml.EventTypeXidCriticalError != 0:
			r.count(event)
		}
	}
}

func (r *reader) count(event nvml.EventData) {
	info, ret := event.Device.GetPciInfo()
	for i := range r.devices {
		if d := &r.devices[i]; ret == nvml.SUCCESS && d.address == address(info) {
			d.xids++
			d.lastXID = event.EventData
		}
	}
}

func (r *reader) report(now time.Time) Report {
	var report Report
	for i := range r.devices {
		report.GPUs = append(report.GPUs, r.devices[i].sample(now))
	}
	return report
}

func (d *watched) sample(now time.Time) Sample {
	s := Sample{PCI: d.address, Name: d.name, Time: now, XIDs: d.xids, LastXID: d.lastXID}
	temperature, _ := d.GetTemperature(nvml.TEMPERATURE_GPU)
	s.TemperatureC = int(temperature)
	s.PowerMW, _ = d.GetPowerUsage()
	s.ClockMHz, _ = d.GetClockInfo(nvml.CLOCK_SM)
	s.MaxClockMHz, _ = d.GetMaxClockInfo(nvml.CLOCK_SM)
	if reasons, ret := d.GetCurrentClocksEventReasons(); ret == nvml.SUCCESS {
		s.Throttled = throttling(reasons)
	}
	if memory, ret := d.GetMemoryInfo(); ret == nvml.SUCCESS {
		s.UsedBytes, s.TotalBytes = memory.Used, memory.Total
	}
	s.LinkGen, _ = d.GetCurrPcieLinkGeneration()
	s.LinkWidth, _ = d.GetCurrPcieLinkWidth()
	s.MaxLinkGen, _ = d.GetMaxPcieLinkGeneration()
	s.MaxLinkWidth, _ = d.GetMaxPcieLinkWidth()
	s.Replays, _ = d.GetPcieReplayCounter()
	s.UncorrectedECC, _ = d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
	return s
}

// throttleNames are the reasons that slow a busy GPU down.
var throttleNames = []struct {
	bit  uint64
	name string
}{
	{nvml.ClocksEventReasonSwPowerCap, "power cap"},
	{nvml.ClocksThrottleReasonHwSlowdown, "hardware slowdown"},
	{nvml.ClocksEventReasonSwThermalSlowdown, "heat, by software"},
	{nvml.ClocksThrottleReasonHwThermalSlowdown, "heat, by hardware"},
	{nvml.ClocksThrottleReasonHwPowerBrakeSlowdown, "power brake"},
}

func throttling(reasons uint64) []string {
	var list []string
	for _, r := range throttleNames {
		if reasons&r.bit != 0 {
			list = append(list, r.name)
		}
	}
	return list
}

// address is the driver's "00000000:41:00.0" in the form of sysfs, "0000:41:00.0".
func address(info nvml.PciInfo) string {
	var b strings.Builder
	for _, c := range info.BusId {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	id := strings.ToLower(b.String())
	if len(id) == len("00000000:41:00.0") {
		id = strings.TrimPrefix(id, "0000")
	}
	return id
}

func failure(what string, ret nvml.Return) error {
	return fmt.Errorf("telemetry: %s: %s", what, nvml.ErrorString(ret))
}
