//go:build cuda

package cuda

import (
	"embed"
	"errors"
	"fmt"
	"unsafe"

	"gorgonia.org/cu"
)

//go:embed ptx/*.ptx
var ptx embed.FS

// Device is one GPU in its primary context, with one stream.
type Device struct {
	device     cu.Device
	early      bool // blocks may start before the kernel in front has ended
	processors int
	shared     int // bytes of shared memory that a block can have
	context    cu.CUContext
	stream     cu.Stream
	modules    map[string]cu.Module
	functions  map[string]cu.Function
	owned      map[uintptr]struct{} // Alloc without Free
}

// Open binds device number ordinal to the calling thread, to which the caller
// has locked itself, and makes a stream.
func Open(ordinal int) (*Device, error) {
	d := &Device{modules: map[string]cu.Module{}, functions: map[string]cu.Function{}, owned: map[uintptr]struct{}{}}
	var err error
	if d.device, err = cu.GetDevice(ordinal); err != nil {
		return nil, wrap(fmt.Sprintf("open device %d", ordinal), err)
	}
	d.early, d.processors = d.Capability() >= 9, d.Processors()
	if d.shared, err = blockShared(d.device); err != nil {
		return nil, wrap("read the shared memory of a block", err)
	}
	if d.context, err = d.device.RetainPrimaryCtx(); err != nil {
		return nil, wrap("create context", err)
	}
	if err := cu.SetCurrentContext(d.context); err != nil {
		return nil, errors.Join(wrap("bind context", err), wrap("release context", d.device.ReleasePrimaryCtx()))
	}
	if d.stream, err = cu.MakeStream(cu.NonBlocking); err != nil {
		return nil, errors.Join(wrap("create stream", err), wrap("release context", d.device.ReleasePrimaryCtx()))
	}
	return d, nil
}

// Name is the product name.
func (d *Device) Name() string {
	name, err := d.device.Name()
	if err != nil {
		return "unknown"
	}
	return name
}

// Processors is the number of streaming multiprocessors.
func (d *Device) Processors() int {
	n, err := d.device.Attribute(cu.MultiprocessorCount)
	if err != nil {
		return 1
	}
	return n
}

// Capability is the major number of the compute capability.
func (d *Device) Capability() int {
	n, err := d.device.Attribute(cu.ComputeCapabilityMajor)
	if err != nil {
		return 0
	}
	return n
}

// Alloc returns zeroed device memory that the caller frees, or Close.
func (d *Device) Alloc(bytes int) (uintptr, error) {
	p, err := cu.MemAlloc(int64(bytes))
	if err != nil {
		return 0, wrap(fmt.Sprintf("allocate %d bytes", bytes), err)
	}
	d.owned[p.Uintptr()] = struct{}{}
	if err := cu.MemsetD8(p, 0, int64(bytes)); err != nil {
		return 0, wrap("clear memory", err)
	}
	// The fill runs on the default stream, which ours does not wait for.
	return p.Uintptr(), wrap("clear memory", cu.Synchronize())
}

// Free returns memory that Alloc gave. Work that uses it must have finished.
func (d *Device) Free(p uintptr) error {
	delete(d.owned, p)
	return wrap("free memory", cu.MemFree(cu.DevicePtr(p)))
}

// Write copies host memory to the device after everything enqueued.
func (d *Device) Write(dst uintptr, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	if err := d.Sync(); err != nil {
		return err
	}
	return wrap("copy to device", cu.MemcpyHtoD(cu.DevicePtr(dst), unsafe.Pointer(&src[0]), int64(len(src))))
}

// Read copies device memory to the host after everything enqueued.
func (d *Device) Read(dst []byte, src uintptr) error {
	if len(dst) == 0 {
		return nil
	}
	if err := d.Sync(); err != nil {
		return err
	}
	return wrap("copy from device", cu.MemcpyDtoH(unsafe.Pointer(&dst[0]), cu.DevicePtr(src), int64(len(dst))))
}

// Sync waits for everything enqueued.
func (d *Device) Sync() error { return wrap("synchronize", d.stream.Synchronize()) }

// function finds a kernel of an embedded module, loading the module at its first use.
func (d *Device) function(module, name string) (cu.Function, error) {
	key := module + "." + name
	if f, ok := d.functions[key]; ok {
		return f, nil
	}
	m, err := d.load(module)
	if err != nil {
		return cu.Function{}, err
	}
	f, err := m.Function(name)
	if err != nil {
		return cu.Function{}, wrap("find kernel "+key, err)
	}
	d.functions[key] = f
	return f, nil
}

// build is the name of a module as it is compiled for the device.
func (d *Device) build(module string) string {
	if f, err := ptx.Open("ptx/" + module + "_sm90.ptx"); d.early && err == nil {
		_ = f.Close() // embedded
		return module + "_sm90"
	}
	return module
}

// load has the driver compile an embedded module, once.
func (d *Device) load(module string) (cu.Module, error) {
	if m, ok := d.modules[module]; ok {
		return m, nil
	}
	text, err := ptx.ReadFile("ptx/" + module + ".ptx")
	if err != nil {
		return cu.Module{}, fmt.Errorf("cuda: no kernels named %q are embedded: %w", module, err)
	}
	m, err := loadModule(module, string(text))
	if err == nil {
		d.modules[module] = m
	}
	return m, err
}

// Close frees the device's memory, modules and stream. After an aborted kernel
// it still works; after a device fault it reports it.
func (d *Device) Close() error {
	errs := []error{wrap("synchronize", d.stream.Synchronize())}
	for p := range d.owned {
		errs = append(errs, d.Free(p))
	}
	for _, m := range d.modules {
		errs = append(errs, wrap("unload module", m.Unload()))
	}
	errs = append(errs, wrap("destroy stream", d.stream.Destroy()), wrap("release context", d.device.ReleasePrimaryCtx()))
	return errors.Join(errs...)
}
