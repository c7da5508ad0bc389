//go:build cuda

package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"
)

type exchangeParams struct {
	push      [maxRanks]uint64
	inbox     [maxRanks]uint64
	local     uint64
	hostAbort uint64
	report    uint64
	timeoutNS uint64
	area      uint32
	rank      uint32
	others    uint32
	everyone  uint32
}

// ExchangeConfig describes one rank's part in a group's all-reduces.
type ExchangeConfig struct {
	Rank, Ranks int
	MaxBytes    int           // largest payload
	Timeout     time.Duration // longest wait for a peer; 0 means 1 s
	// Control is ControlBytes of shared memory, one mapping a process: the
	// group's abort word, then a report of each rank.
	Control []byte
	// Host is HostBytes of shared memory for the host path; nil goes peer to peer.
	Host []byte
	// FirstOp is where operation numbers begin; 0 means FirstOp. Equal in all ranks.
	FirstOp uint32
}

func (c ExchangeConfig) validate() error {
	switch {
	case !Supported(c.Ranks):
		return fmt.Errorf("cuda: all-reduce over %d ranks: there are kernels for 2 to 8", c.Ranks)
	case c.Rank < 0 || c.Rank >= c.Ranks:
		return fmt.Errorf("cuda: rank %d of %d", c.Rank, c.Ranks)
	case c.MaxBytes <= 0 || c.MaxBytes%4096 != 0:
		return fmt.Errorf("cuda: payload of %d bytes: give a positive multiple of 4096", c.MaxBytes)
	case len(c.Control) < ControlBytes:
		return fmt.Errorf("cuda: %d bytes of control memory: give %d", len(c.Control), ControlBytes)
	case c.Host != nil && len(c.Host) < HostBytes(c.Ranks, c.MaxBytes):
		return fmt.Errorf("cuda: %d bytes of host memory: give %d", len(c.Host), HostBytes(c.Ranks, c.MaxBytes))
	}
	return nil
}

// Exchange is one rank's end of a group's all-reduces. Make one, give its handle
// to the other ranks, Connect with theirs. A group that aborted is over: its
// ranks close their exchanges and make new ones for the next epoch.
type Exchange struct {
	device *Device
	config ExchangeConfig
	inbox  uintptr // peer path: this rank's memory, one slot pair a rank
	local  uintptr
	peers  []uintptr // imported inboxes, 0 for this rank's own
	params exchangeParams
}

// NewExchange allocates this rank's memory of the group.
func NewExchange(d *Device, c ExchangeConfig) (*Exchange, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if c.Timeout == 0 {
		c.Timeout = time.Second
	}
	if c.FirstOp == 0 {
		c.FirstOp = FirstOp
	}
	e := &Exchange{device: d, config: c}
	if err := e.allocate(); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

func (e *Exchange) allocate() error {
	c := e.config
	var err error
	if e.local, err = e.device.Alloc(localBytes); err != nil {
		return err
	}
	ops := make([]byte, maxBlocks*4)
	for i := range maxBlocks {
		binary.LittleEndian.PutUint32(ops[4*i:], c.FirstOp)
	}
	if err := e.device.Write(e.local+opsOffset, ops); err != nil {
		return err
	}
	control, err := e.device.RegisterHost(c.Control)
	if err != nil {
		e.config.Control = nil
		return err
	}
	e.params = exchangeParams{
		local: uint64(e.local), hostAbort: uint64(control),
		report:    uint64(control) + uint64(reportStride*(1+c.Rank)),
		timeoutNS: uint64(c.Timeout), area: uint32(c.MaxBytes), rank: uint32(c.Rank),
	}
	if c.Host == nil {
		e.inbox, err = e.device.Alloc(c.Ranks * outboxBytes(c.MaxBytes))
		return err
	}
	return e.useHost()
}

// useHost points the exchange at outboxes in host memory: each rank writes its
// own, once, and reads those of the others.
func (e *Exchange) useHost() error {
	host, err := e.device.RegisterHost(e.config.Host)
	if err != nil {
		e.config.Host = nil
		return err
	}
	box := uint64(outboxBytes(e.config.MaxBytes))
	for r := range e.config.Ranks {
		e.params.push[r] = uint64(host) + box*uint64(e.config.Rank)
		e.params.inbox[r] = uint64(host) + box*uint64(r)
	}
	e.params.others, e.params.everyone = 1, 1
	return nil
}

// Handle is what the other ranks need to Connect; meaningless on the host path.
func (e *Exchange) Handle() (Handle, error) {
	if e.inbox == 0 {
		return Handle{}, nil
	}
	return e.device.Export(e.inbox)
}

// Connect maps the inboxes of the other ranks; handles are in rank order.
func (e *Exchange) Connect(handles []Handle) error {
	if e.inbox == 0 {
		return nil
	}
	addresses := make([]uintptr, len(handles))
	e.peers = make([]uintptr, len(handles))
	for r, h := range handles {
		if r == e.config.Rank {
			addresses[r] = e.inbox
			continue
		}
		p, err := e.device.Import(h)
		if err != nil {
			return fmt.Errorf("connect rank %d to rank %d: %w", e.config.Rank, r, err)
		}
		e.peers[r], addresses[r] = p, p
	}
	e.connectTo(addresses)
	return nil
}

func (e *Exchange) connectTo(inboxes []uintptr) {
	box := uint64(outboxBytes(e.config.MaxBytes))
	for r, p := range inboxes {
		e.params.push[r] = uint64(p) + box*uint64(e.config.Rank)
		e.params.inbox[r] = uint64(e.inbox) + box*uint64(r)
	}
	e.params.everyone = 1<<len(inboxes) - 1
	e.params.others = e.params.everyone &^ (1 << e.config.Rank)
}

const itemBytes = 16 // a payload is a multiple

// plainCall and fusedCall are the parameters of src/allreduce.cu's kernels.
type plainCall struct {
	x              exchangeParams
	in, out        uint64
	words, writers uint32
}

type fusedCall struct {
	x                        exchangeParams
	in                       uint64
	residual, weight, normed uint64
	inverseCols              inverse
	eps                      float32
	_                        uint32
	rows, words              uint32
}

// AllReduce enqueues out = sum over ranks of in, bf16. count is a multiple of 8.
func (e *Exchange) AllReduce(form Form, g Grid, out, in uintptr, count int) error {
	if err := e.admit(form, g, count*2); err != nil {
		return err
	}
	f, err := e.device.function(e.module(false), formKernels[form])
	if err != nil {
		return err
	}
	params := plainCall{e.params, uint64(in), uint64(out), uint32(count / 2), uint32(g.Writers)}
	return launchPacked(f, grid{x: g.Blocks, y: 1, threads: g.Threads}, e.device.stream, &params)
}

// Fusion is what follows the sum in the fused form: bf16 tensors of the
// payload's shape, except weight, which is one row.
type Fusion struct {
	Residual uintptr // replaced by residual + sum
	Weight   uintptr
	Normed   uintptr // RMSNorm of the new residual
	Eps      float32
}

// AllReduceNorm enqueues the sum of [rows, cols], the residual addition and the
// norm in one kernel. cols is a multiple of 8; form is OneShot or TwoShot.
func (e *Exchange) AllReduceNorm(form Form, g Grid, f Fusion, in uintptr, rows, cols int) error {
	if err := e.admit(form, g, rows*cols*2); err != nil {
		return err
	}
	name, err := fusedKernel(form, g, cols)
	if err != nil {
		return err
	}
	fn, err := e.device.function(e.module(g.Cluster > 1), name)
	if err != nil {
		return err
	}
	params := fusedCall{
		x: e.params, in: uint64(in), residual: uint64(f.Residual), weight: uint64(f.Weight), normed: uint64(f.Normed),
		inverseCols: inverseOf(cols), eps: f.Eps, rows: uint32(rows), words: uint32(cols / 2),
	}
	return launchPacked(fn, grid{x: g.Blocks, y: 1, threads: g.Threads, cluster: g.Cluster}, e.device.stream, &params)
}

// module is the kernels for this group's size, those that need sm_90 apart.
func (e *Exchange) module(sm90 bool) string {
	name := "allreduce_" + strconv.Itoa(e.config.Ranks)
	if sm90 {
		name += "_sm90"
	}
	return name
}

// Load compiles the kernels that calls will use, those for clusters included if
// they are wanted.
func (e *Exchange) Load(clusters bool) error {
	for _, name := range formKernels {
		if _, err := e.device.function(e.module(false), name); err != nil {
			return err
		}
	}
	if !clusters {
		return nil
	}
	_, err := e.device.function(e.module(true), "all_reduce_one_shot_norm_cluster")
	return err
}

// SetTimeout changes the longest wait for a peer in calls to come.
func (e *Exchange) SetTimeout(d time.Duration) { e.params.timeoutNS = uint64(d) }

func (e *Exchange) admit(form Form, g Grid, bytes int) error {
	switch {
	case bytes <= 0 || bytes%itemBytes != 0 || bytes > e.config.MaxBytes:
		return fmt.Errorf("cuda: all-reduce of %d bytes: give a positive multiple of %d up to %d", bytes, itemBytes, e.config.MaxBytes)
	case form == Staged && (g.Writers < 1 || g.Writers >= g.Blocks):
		return fmt.Errorf("cuda: staged all-reduce with %d of %d blocks writing", g.Writers, g.Blocks)
	case g.Blocks < 1 || g.Blocks > maxBlocks || g.Threads < 32 || g.Threads > 1024 || g.Threads%32 != 0:
		return fmt.Errorf("cuda: all-reduce in %d blocks of %d threads", g.Blocks, g.Threads)
	}
	return nil
}

// Close frees what the exchange holds, also when peers have died.
func (e *Exchange) Close() error {
	errs := []error{e.device.Sync()}
	for _, p := range e.peers {
		if p != 0 {
			errs = append(errs, e.device.Unimport(p))
		}
	}
	for _, p := range []uintptr{e.inbox, e.local} {
		if p != 0 {
			errs = append(errs, e.device.Free(p))
		}
	}
	for _, mem := range [][]byte{e.config.Control, e.config.Host} {
		if mem != nil {
			errs = append(errs, e.device.UnregisterHost(mem))
		}
	}
	e.peers, e.inbox, e.local = nil, 0, 0
	e.config.Control, e.config.Host = nil, nil
	return errors.Join(errs...)
}
