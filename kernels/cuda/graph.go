//go:build cuda

package cuda

// #include <cuda.h>
import "C"

import (
	"errors"
	"time"
)

// Graph is enqueued work that can be launched again as one.
type Graph struct {
	device *Device
	exec   C.CUgraphExec
}

// Capture records what enqueue puts on the device's stream, without running it.
// enqueue must not wait for the device.
func (d *Device) Capture(enqueue func() error) (*Graph, error) {
	if err := check("begin capture", C.cuStreamBeginCapture(stream(d.stream), C.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)); err != nil {
		return nil, err
	}
	failed := enqueue()
	var graph C.CUgraph
	err := errors.Join(failed, check("end capture", C.cuStreamEndCapture(stream(d.stream), &graph)))
	if graph != nil {
		defer C.cuGraphDestroy(graph)
	}
	if err != nil {
		return nil, err
	}
	g := &Graph{device: d}
	if err := check("instantiate graph", C.cuGraphInstantiate(&g.exec, graph, 0)); err != nil {
		return nil, err
	}
	return g, nil
}

// Launch enqueues the graph.
func (g *Graph) Launch() error {
	return check("launch graph", C.cuGraphLaunch(g.exec, stream(g.device.stream)))
}

// Close frees the graph, which must not be running.
func (g *Graph) Close() error { return check("destroy graph", C.cuGraphExecDestroy(g.exec)) }

// Time runs enqueue and returns how long the device took for what it enqueued.
func (d *Device) Time(enqueue func() error) (time.Duration, error) {
	var begin, end C.CUevent
	if err := check("create event", C.cuEventCreate(&begin, 0)); err != nil {
		return 0, err
	}
	defer C.cuEventDestroy(begin)
	if err := check("create event", C.cuEventCreate(&end, 0)); err != nil {
		return 0, err
	}
	defer C.cuEventDestroy(end)
	err := check("record event", C.cuEventRecord(begin, stream(d.stream)))
	err = errors.Join(err, enqueue(), check("record event", C.cuEventRecord(end, stream(d.stream))), d.Sync())
	var ms C.float
	err = errors.Join(err, check("read events", C.cuEventElapsedTime(&ms, begin, end)))
	return time.Duration(float64(ms) * float64(time.Millisecond)), err
}
