//go:build cuda

package cuda

// #include <cuda.h>
import "C"

import (
	"unsafe"
)

var _ Handle = [C.CU_IPC_HANDLE_SIZE]byte{}

// Export makes the allocation that begins at p importable by other processes.
func (d *Device) Export(p uintptr) (Handle, error) {
	var h C.CUipcMemHandle
	err := check("export memory", C.cuIpcGetMemHandle(&h, C.CUdeviceptr(p)))
	return *(*Handle)(unsafe.Pointer(&h)), err
}

// Import maps another process's allocation and returns its address here. It
// enables peer access where the memory is another device's.
func (d *Device) Import(h Handle) (uintptr, error) {
	var p C.CUdeviceptr
	err := check("import memory", C.cuIpcOpenMemHandle(&p, *(*C.CUipcMemHandle)(unsafe.Pointer(&h)), C.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS))
	return uintptr(p), err
}

// Unimport takes away a mapping that Import made, also when its owner has died.
func (d *Device) Unimport(p uintptr) error {
	return check("close imported memory", C.cuIpcCloseMemHandle(C.CUdeviceptr(p)))
}

// RegisterHost pins host memory and returns its address on the device. The
// memory may be shared with other processes, each of which registers it.
func (d *Device) RegisterHost(mem []byte) (uintptr, error) {
	host := unsafe.Pointer(unsafe.SliceData(mem))
	if err := check("register host memory", C.cuMemHostRegister(host, C.size_t(len(mem)),
		C.CU_MEMHOSTREGISTER_PORTABLE|C.CU_MEMHOSTREGISTER_DEVICEMAP)); err != nil {
		return 0, err
	}
	var p C.CUdeviceptr
	err := check("find host memory on the device", C.cuMemHostGetDevicePointer(&p, host, 0))
	return uintptr(p), err
}

// UnregisterHost unpins memory that RegisterHost pinned.
func (d *Device) UnregisterHost(mem []byte) error {
	return check("unregister host memory", C.cuMemHostUnregister(unsafe.Pointer(unsafe.SliceData(mem))))
}
