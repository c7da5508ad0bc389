package rank

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/octet-run/octet/collectives"
	"github.com/octet-run/octet/collectives/transport"
	"github.com/octet-run/octet/internal/shm"
	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/kernels/cuda"
)

// deviceReducer is a GPU rank's layers.Reducer. Sums run on the device's stream,
// without the host: a group that breaks is found when the stream has ended. What is
// for the host anyway, logits for rank 0 and trees for the others, goes over the
// host's slabs.
type deviceReducer struct {
	host   *reducer
	device device
	width  int // of the model's rows
	config *Config

	at      Place
	end     end // nil in a group of one, and between epochs
	path    path
	pinned  []byte
	noted   *[]operation // what a recording keeps, nil for nothing
	opsHash uint64
}

var _ groupReducer = (*deviceReducer)(nil)

// operation is one reduction as the ranks compare them.
type operation struct {
	kind        transport.Kind
	rows, width int
}

func newDeviceReducer(d device, c *Config, width int) *deviceReducer {
	return &deviceReducer{host: newReducer(), device: d, config: c, width: width}
}

// join begins an epoch: the GPUs find their path.
func (r *deviceReducer) join(comm *collectives.Communicator, at Place) error {
	if err := r.host.join(comm, at); err != nil {
		return err
	}
	r.at, r.opsHash = at, 0
	if at.Ranks == 1 {
		return nil
	}
	var err error
	r.end, r.path, err = connectDevices(meeting{comm: comm, device: r.device, config: r.config, at: at, width: r.width})
	return err
}

// part ends it: mappings of peers' memory go.
func (r *deviceReducer) part() error {
	var err error
	if r.end != nil {
		err = r.end.Close()
	}
	r.end, r.at = nil, Place{}
	return errors.Join(err, r.host.part())
}

func (r *deviceReducer) communicator() *collectives.Communicator { return r.host.comm }
func (r *deviceReducer) prove() error                            { return r.host.prove() }
func (r *deviceReducer) soFar() spent                            { return r.host.spent }
func (r *deviceReducer) hash() uint64                            { return r.host.hash() ^ r.opsHash }

// Rank is the rank in the group.
func (r *deviceReducer) Rank() int { return r.host.Rank() }

// Size is the number of ranks.
func (r *deviceReducer) Size() int { return r.host.Size() }

// Partial is scratch memory: the kernels read partial sums from anywhere.
func (r *deviceReducer) Partial(rows, width int) kernels.Tensor {
	return r.device.Scratch(r.device.Activation(), rows, width)
}

// AllReduce enqueues the sum of the ranks' partials.
func (r *deviceReducer) AllReduce(partial kernels.Tensor) kernels.Tensor {
	r.note(operation{transport.AllReduce, partial.Rows, partial.Cols})
	if r.end == nil {
		return partial
	}
	sum := r.Partial(partial.Rows, partial.Cols)
	r.inLaunches(partial, func(lo, hi int) error { return r.end.reduce(sum.RowRange(lo, hi), partial.RowRange(lo, hi)) })
	return sum
}

// AllReduceAddNorm enqueues the sum, its addition to residual and the norm.
func (r *deviceReducer) AllReduceAddNorm(partial, residual, weight kernels.Tensor, eps float32) kernels.Tensor {
	// The kernel reads the weight as bf16; the same arithmetic in two steps reads any.
	if r.end == nil || weight.DType != kernels.BF16 && r.device.Activation() == kernels.BF16 {
		sum := r.AllReduce(partial)
		normed := r.Partial(partial.Rows, partial.Cols)
		r.device.AddRMSNorm(normed, residual, sum, weight, eps)
		return normed
	}
	r.note(operation{transport.AllReduceAddNorm, partial.Rows, partial.Cols})
	normed := r.Partial(partial.Rows, partial.Cols)
	r.inLaunches(partial, func(lo, hi int) error {
		return r.end.reduceAddNorm(normed.RowRange(lo, hi), residual.RowRange(lo, hi), partial.RowRange(lo, hi), weight, eps)
	})
	return normed
}

// inLaunches cuts a payload into row ranges that one launch takes. A row's bits do
// not depend on the cut.
func (r *deviceReducer) inLaunches(t kernels.Tensor, launch func(lo, hi int) error) {
	if t.Empty() || r.host.err != nil {
		return
	}
	most := max(1, exchangeBytes/(t.Cols*t.DType.Bytes()))
	for lo := 0; lo < t.Rows; lo += most {
		if err := launch(lo, min(lo+most, t.Rows)); err != nil {
			r.host.fail(err)
			return
		}
	}
}

// note records an operation for the comparison between ranks.
func (r *deviceReducer) note(o operation) {
	word := uint64(o.kind)<<56 | uint64(uint32(o.rows))<<32 | uint64(uint32(o.width))
	r.opsHash = (r.opsHash ^ word) * 0x100000001b3
	r.host.record(word)
	if r.noted != nil {
		*r.noted = append(*r.noted, o)
	}
}

// GatherToRoot brings the shards to the host, which waits for the pass, and
// collects them there.
func (r *deviceReducer) GatherToRoot(shard kernels.Tensor, widths []int) kernels.Tensor {
	local, err := r.fetch(shard)
	if err == nil {
		err = r.broken()
	}
	if err != nil {
		r.host.fail(err)
		local = kernels.Tensor{DType: kernels.F32, Rows: shard.Rows, Cols: shard.Cols, Stride: shard.Cols}
	}
	if r.Size() == 1 && err == nil {
		return local
	}
	return r.host.GatherToRoot(local, widths)
}

// fetch is t in host memory, once the device is through.
func (r *deviceReducer) fetch(t kernels.Tensor) (kernels.Tensor, error) {
	if t.Host != nil || t.Empty() {
		return t, nil
	}
	size := t.Rows * t.Cols * t.DType.Bytes()
	if len(r.pinned) < size {
		var err error
		if r.pinned, err = r.device.hostMemory(2 * size); err != nil {
			return t, err
		}
	}
	if err := r.device.Download(r.pinned[:size], t); err != nil {
		return t, err
	}
	return kernels.Tensor{DType: t.DType, Rows: t.Rows, Cols: t.Cols, Stride: t.Cols, Host: unsafe.Pointer(&r.pinned[0])}, nil
}

// Broadcast copies root's host tensor to every rank.
func (r *deviceReducer) Broadcast(t kernels.Tensor, root int) {
	if t.Host == nil && !t.Empty() {
		panic("rank: a broadcast of device memory")
	}
	r.host.Broadcast(t, root)
}

// failure is the round's first error so far.
func (r *deviceReducer) failure() error { return r.host.err }

// take returns and clears the round's error and the time spent on the host's side.
// It is called once the stream has ended.
func (r *deviceReducer) take() (spent, error) {
	total, err := r.host.take()
	if err == nil {
		err = r.broken()
	}
	return total, err
}

// broken is why the devices' waits have ended, nil while they have not. The rank that
// others waited for in vain is named, as where hosts wait.
func (r *deviceReducer) broken() error {
	if r.end == nil || !cuda.Aborted(control(r.at.Device, r.path)) {
		return nil
	}
	for _, b := range cuda.Blames(control(r.at.Device, r.path)) {
		r.at.Slabs.Abort(b.Peer, shm.TimedOut)
		return fmt.Errorf("rank %d waited %v for rank %d in all-reduce %d of the GPUs (%s): %w", b.Rank, r.config.CollectiveTimeout,
			b.Peer, b.Op, b.Phase, &shm.AbortError{Epoch: r.at.Slabs.Epoch(), Rank: b.Peer, Reason: shm.TimedOut})
	}
	if err := r.at.Slabs.Err(); err != nil {
		return err
	}
	return &shm.AbortError{Epoch: r.at.Slabs.Epoch(), Rank: -1, Reason: shm.Requested}
}
