//go:build cgo && cuda

package topology

import (
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// nvLinksPerGPU is the most that any GPU has (Blackwell: 18).
const nvLinksPerGPU = 18

// addDriverFacts asks the NVIDIA driver, where there is one, for what sysfs does
// not know. A machine without a driver keeps what sysfs says.
func addDriverFacts(box *Box) {
	library := nvml.New()
	if library.Init() != nvml.SUCCESS {
		return
	}
	defer library.Shutdown()
	readDriver(box, library)
}

func readDriver(box *Box, library nvml.Interface) {
	if version, ret := library.SystemGetDriverVersion(); ret == nvml.SUCCESS {
		box.Driver = version
	}
	index := map[string]int{}
	for i, gpu := range box.GPUs() {
		index[strings.ToLower(gpu.Address)] = i
	}
	names := map[string]string{}
	links := map[[2]int]int{}
	for address, i := range index {
		device, ret := library.DeviceGetHandleByPciBusId(address)
		if ret != nvml.SUCCESS {
			continue
		}
		if name, ret := device.GetName(); ret == nvml.SUCCESS {
			names[address] = name
		}
		for link := range nvLinksPerGPU {
			if state, ret := device.GetNvLinkState(link); ret != nvml.SUCCESS || state != nvml.FEATURE_ENABLED {
				continue
			}
			remote, ret := device.GetNvLinkRemotePciInfo(link)
			if ret != nvml.SUCCESS {
				continue
			}
			if j, known := index[busID(remote)]; known && j != i {
				links[[2]int{min(i, j), max(i, j)}]++
			}
		}
	}
	for root := range box.Roots {
		renameGPUs(&box.Roots[root], names)
	}
	for i := range len(index) {
		for j := i + 1; j < len(index); j++ {
			// Each link was seen from both of its ends.
			if n := links[[2]int{i, j}] / 2; n > 0 {
				box.NVLinks = append(box.NVLinks, NVLink{A: i, B: j, Links: n})
			}
		}
	}
}

func renameGPUs(d *Device, names map[string]string) {
	if name, known := names[strings.ToLower(d.Address)]; known {
		d.Name = name
	}
	for i := range d.Children {
		renameGPUs(&d.Children[i], names)
	}
}

// busID is the driver's "00000000:41:00.0" in the form of sysfs, "0000:41:00.0".
func busID(info nvml.PciInfo) string {
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
