package rank

import (
	"errors"
	"slices"

	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/kernels/cuda"
	"github.com/octet-run/octet/model"
)

const (
	graphRows = 64 // passes of more rows are bound by arithmetic, not by launches
	maxGraphs = 128
)

// graphs keeps verify passes as graphs, one a shape. A shape's first pass runs
// launch by launch, which loads kernels and takes memory; the second is recorded;
// all others are one launch each.
type graphs struct {
	device  device
	reducer *deviceReducer
	passes  map[cuda.PassShape]*recordedPass
	used    []cuda.PassShape // least recently first
}

// recordedPass is one shape's pass.
type recordedPass struct {
	recording recording // nil: not recorded yet
	refused   bool      // recording failed: launch by launch for ever
	output    model.Output
	logits    kernels.Tensor
	noted     []operation
}

// result is what a pass leaves on the device.
type result struct {
	output model.Output
	logits kernels.Tensor
}

func newGraphs(d device, r *deviceReducer) *graphs {
	return &graphs{device: d, reducer: r, passes: map[cuda.PassShape]*recordedPass{}}
}

// run runs pass over b, or its recording. pass is a function of b's shape and
// contents and of nothing else.
func (g *graphs) run(b *kernels.Batch, pass func() result) (result, error) {
	shape := cuda.ShapeOf(b)
	p, known := g.passes[shape]
	if !known {
		g.passes[shape] = &recordedPass{}
		return pass(), g.touch(shape)
	}
	err := g.touch(shape)
	if p.recording != nil {
		if g.device.replay(p.recording, b) {
			for _, o := range p.noted {
				g.reducer.note(o)
			}
			return result{p.output, p.logits}, err
		}
		err = errors.Join(err, p.recording.Close())
		p.recording = nil
		return pass(), err // takes the memory that the next recording will name
	}
	if !p.refused {
		if r, ok := g.record(p, b, pass); ok {
			return r, err
		}
		p.refused = true
	}
	return pass(), err
}

// record keeps the pass as a graph and runs it. Where it cannot be, nothing has run.
func (g *graphs) record(p *recordedPass, b *kernels.Batch, pass func() result) (result, bool) {
	var r result
	hash, seen := g.reducer.opsHash, []operation(nil)
	g.reducer.noted = &seen
	// The operations are told to the supervisor once the recording is known to run.
	record := g.reducer.host.record
	g.reducer.host.record = func(uint64) {}
	recorded, err := g.device.record(b, func() { r = pass() })
	g.reducer.noted, g.reducer.host.record, g.reducer.opsHash = nil, record, hash
	if err == nil && g.reducer.failure() != nil {
		err = errors.Join(g.reducer.failure(), recorded.Close())
	}
	if err != nil {
		return result{}, false
	}
	p.recording, p.output, p.logits, p.noted = recorded, r.output, r.logits, seen
	for _, o := range seen {
		g.reducer.note(o)
	}
	return r, true
}

// touch makes shape the last used and drops the one that was not for longest.
func (g *graphs) touch(shape cuda.PassShape) error {
	if i := slices.Index(g.used, shape); i >= 0 {
		g.used = slices.Delete(g.used, i, i+1)
	}
	g.used = append(g.used, shape)
	if len(g.used) <= maxGraphs {
		return nil
	}
	oldest := g.used[0]
	g.used = g.used[1:]
	err := g.passes[oldest].close()
	delete(g.passes, oldest)
	return err
}

// drop forgets everything: recordings name the memory of an epoch's peers.
func (g *graphs) drop() error {
	var errs []error
	for _, p := range g.passes {
		errs = append(errs, p.close())
	}
	clear(g.passes)
	g.used = nil
	return errors.Join(errs...)
}

func (p *recordedPass) close() error {
	if p.recording == nil {
		return nil
	}
	return p.recording.Close()
}
