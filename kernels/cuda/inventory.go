//go:build cuda

package cuda

// #include <cuda.h>
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"gorgonia.org/cu"
)

// Count is the number of devices; none without a driver.
func Count() int {
	n, err := cu.NumDevices()
	if err != nil {
		return 0
	}
	return n
}

// Devices lists the GPUs that this process may use. It makes no context on them.
func Devices() ([]DeviceInfo, error) {
	n, err := cu.NumDevices()
	if err != nil {
		err = wrap("count devices", err)
		if failed := (*Error)(nil); errors.As(err, &failed) && failed.Code == int(C.CUDA_ERROR_NO_DEVICE) {
			return nil, ErrNoDriver
		}
		return nil, err
	}
	list := make([]DeviceInfo, n)
	for i := range list {
		if list[i], err = describeDevice(i); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func describeDevice(ordinal int) (DeviceInfo, error) {
	d, err := cu.GetDevice(ordinal)
	if err != nil {
		return DeviceInfo{}, wrap(fmt.Sprintf("open device %d", ordinal), err)
	}
	info := DeviceInfo{}
	var bus [32]C.char
	if err := check("read the PCI address", C.cuDeviceGetPCIBusId(&bus[0], C.int(len(bus)), C.CUdevice(d))); err != nil {
		return info, err
	}
	info.PCI = pciAddress(C.GoString(&bus[0]))
	var bytes C.size_t
	if err := check("read the memory size", C.cuDeviceTotalMem(&bytes, C.CUdevice(d))); err != nil {
		return info, err
	}
	info.MemoryBytes = int64(bytes)
	if info.Name, err = d.Name(); err != nil {
		return info, wrap("read the name", err)
	}
	for _, a := range []struct {
		which cu.DeviceAttribute
		to    *int
	}{{cu.ComputeCapabilityMajor, &info.Major}, {cu.ComputeCapabilityMinor, &info.Minor}} {
		if *a.to, err = d.Attribute(a.which); err != nil {
			return info, wrap("read the compute capability", err)
		}
	}
	return info, nil
}

// find is the ordinal of the device at a PCI address.
func find(pci string) (int, error) {
	text := C.CString(pci)
	defer C.free(unsafe.Pointer(text))
	var d C.CUdevice
	if err := check("find the device at "+pci, C.cuDeviceGetByPCIBusId(&d, text)); err != nil {
		return 0, err
	}
	return int(d), nil
}
