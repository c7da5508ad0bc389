// Package cuda computes on an NVIDIA GPU. It has three layers:
//
//   - Device: context, stream, memory, modules, graphs, memory shared with other
//     processes. gorgonia.org/cu wraps most of the driver; what it lacks (IPC
//     handles, host registration, capture, graph launch, kernels that take a
//     struct) is in this package's own cgo files.
//   - Exchange: the all-reduce kernels between the ranks of one machine, over
//     peer memory or pinned host memory.
//   - Backend: kernels.Backend with bf16 activations.
//
// The package is built with the tag `cuda`; without it only Config, the errors
// and a New that says so remain. Building needs a C compiler and no CUDA toolkit:
// include/cuda.h declares what we use of the driver and stub/trampoline.c finds
// it in libcuda.so.1 at the first call. So one binary starts everywhere, and
// Open reports a missing driver as an Error.
//
// Kernels are in src, compiled to PTX by clang (`make kernels`), committed and
// embedded; the driver compiles them for the card at hand. Three modules are compiled
// again for sm_90 and up, where products stream their weights past the rows and
// begin to fetch them before the kernel in front has ended (src/stream.cuh).
//
// A Device, and all that hangs on it, is used from one goroutine locked to its
// OS thread: the rank's engine thread. Calls enqueue on the device's stream.
package cuda
