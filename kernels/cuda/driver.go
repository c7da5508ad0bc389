//go:build cuda

package cuda

/*
#cgo LDFLAGS: -lcuda -ldl -lpthread
#include <cuda.h>

// Launches f with one block of parameters, laid out as the kernel declares them,
// in clusters of `cluster` blocks if that is more than one. A block has `shared`
// bytes of dynamic shared memory. If `early`, blocks may start before the kernel
// in front has ended.
static CUresult launch_packed(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned threads, unsigned cluster,
	unsigned shared, int early, CUstream stream, void *params, size_t size)
{
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, params, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
	CUlaunchAttribute attributes[2];
	CUlaunchConfig config = {gx, gy, gz, threads, 1, 1, shared, stream, attributes, 0};

	// More than every kernel may have without asking.
	if (shared > 48 << 10) {
		CUresult result = cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)shared);
		if (result != CUDA_SUCCESS)
			return result;
	}
	if (cluster > 1)
		attributes[config.numAttrs++] =
			(CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {cluster, 1, 1}};
	if (early)
		attributes[config.numAttrs++] = (CUlaunchAttribute){
			.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, .value.programmaticStreamSerializationAllowed = 1};
	if (config.numAttrs)
		return cuLaunchKernelEx(&config, f, NULL, extra);
	return cuLaunchKernel(f, gx, gy, gz, threads, 1, 1, shared, stream, NULL, extra);
}

// All blocks of a cooperative launch run at once, or it fails.
static CUresult launch_cooperative(CUfunction f, unsigned gx, unsigned gy, unsigned threads, CUstream stream, uint64_t *params, int n)
{
	void *list[8];
	for (int i = 0; i < n && i < 8; i++)
		list[i] = &params[i];
	return cuLaunchCooperativeKernel(f, gx, gy, 1, threads, 1, 1, 0, stream, list);
}

static CUresult load_module(CUmodule *module, const char *ptx, char *log, size_t size)
{
	CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
	void *values[] = {log, (void *)size};
	return cuModuleLoadDataEx(module, ptx, 2, options, values);
}
*/
import "C"

import (
	"fmt"
	"unsafe"

	"gorgonia.org/cu"
)

// check turns a result of a driver call into an error.
func check(op string, code C.CUresult) error {
	if code == C.CUDA_SUCCESS {
		return nil
	}
	return &Error{Op: op, Code: int(code), Text: resultName(int(code))}
}

// wrap gives an error of gorgonia.org/cu our type.
func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	for code, known := range resultNames {
		if known.err == err {
			return &Error{Op: op, Code: code, Text: known.name}
		}
	}
	return &Error{Op: op, Text: err.Error()}
}

type knownResult struct {
	name string
	err  error
}

// resultNames are the results worth a name; others appear as their number.
var resultNames = map[int]knownResult{
	int(C.CUDA_ERROR_INVALID_VALUE):           {"invalid value", cu.InvalidValue},
	int(C.CUDA_ERROR_OUT_OF_MEMORY):           {"out of memory", cu.OutOfMemory},
	int(C.CUDA_ERROR_NOT_INITIALIZED):         {"not initialized", cu.NotInitialized},
	int(C.CUDA_ERROR_NO_DEVICE):               {"no driver or no device", cu.NoDevice},
	int(C.CUDA_ERROR_INVALID_DEVICE):          {"no such device", cu.InvalidDevice},
	int(C.CUDA_ERROR_INVALID_CONTEXT):         {"no context on this thread", cu.InvalidContext},
	int(C.CUDA_ERROR_NOT_FOUND):               {"not found", cu.NotFound},
	int(C.CUDA_ERROR_ILLEGAL_ADDRESS):         {"illegal address", cu.IllegalAddress},
	int(C.CUDA_ERROR_MISALIGNED_ADDRESS):      {"misaligned address", cu.MisalignedAddress},
	int(C.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES): {"launch out of resources", cu.LaunchOutOfResources},
	int(C.CUDA_ERROR_LAUNCH_FAILED):           {"launch failed", cu.LaunchFailed},
	int(C.CUDA_ERROR_ECC_UNCORRECTABLE):       {"uncorrectable ECC error", cu.EccUncorrectable},
	int(C.CUDA_ERROR_NVLINK_UNCORRECTABLE):    {"uncorrectable NVLink error", cu.NvlinkUncorrectable},
	int(C.CUDA_ERROR_NOT_SUPPORTED):           {"not supported by this driver", cu.NotSupported},
}

func resultName(code int) string {
	if known, ok := resultNames[code]; ok {
		return known.name
	}
	return fmt.Sprintf("driver error %d", code)
}

// handle is the driver's handle inside gorgonia.org/cu's wrapper, a struct of
// just that field, which has no accessor.
func handle(f cu.Function) C.CUfunction { return *(*C.CUfunction)(unsafe.Pointer(&f)) }

func stream(s cu.Stream) C.CUstream { return C.CUstream(unsafe.Pointer(s.C())) }

// loadModule compiles PTX for the current device. The driver's log is in the error.
func loadModule(name, ptx string) (cu.Module, error) {
	var module cu.Module
	log := make([]byte, 8<<10)
	text := C.CString(ptx)
	defer C.free(unsafe.Pointer(text))
	code := C.load_module((*C.CUmodule)(unsafe.Pointer(&module)), text, (*C.char)(unsafe.Pointer(&log[0])), C.size_t(len(log)))
	if err := check("load "+name, code); err != nil {
		if end := C.GoString((*C.char)(unsafe.Pointer(&log[0]))); end != "" {
			err.(*Error).Text += ": " + end
		}
		return module, err
	}
	return module, nil
}

// grid is the shape of a launch; 0 in y or z means 1. shared is the bytes of
// dynamic shared memory of a block. early lets blocks start before the kernel in
// front has ended, for kernels that wait for it themselves: src/stream.cuh. Others
// gain nothing, and their blocks would crowd on the processors that are free first.
type grid struct {
	x, y, z, threads, cluster, shared int
	early                             bool
}

// launchPacked runs a kernel whose parameters are laid out in *params, which
// holds no Go pointers.
func launchPacked[P any](f cu.Function, g grid, s cu.Stream, params *P) error {
	var early C.int
	if g.early {
		early = 1
	}
	return check("launch", C.launch_packed(handle(f), C.uint(g.x), C.uint(max(g.y, 1)), C.uint(max(g.z, 1)), C.uint(g.threads), C.uint(g.cluster),
		C.uint(g.shared), early, stream(s), unsafe.Pointer(params), C.size_t(unsafe.Sizeof(*params))))
}

// blockShared is the most shared memory that a block can have, in bytes.
func blockShared(d cu.Device) (int, error) {
	return d.Attribute(cu.DeviceAttribute(C.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN))
}

// launchCooperative runs a kernel all of whose blocks are on the device at once.
// A parameter is 8 bytes or the low bytes of one.
func launchCooperative(f cu.Function, gridX, gridY, threads int, s cu.Stream, params []uint64) error {
	return check("cooperative launch", C.launch_cooperative(handle(f), C.uint(gridX), C.uint(gridY), C.uint(threads), stream(s),
		(*C.uint64_t)(unsafe.Pointer(unsafe.SliceData(params))), C.int(len(params))))
}
