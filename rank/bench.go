package rank

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/kernels/cpu"
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/checkpoint"
	"github.com/octet-run/octet/model/kvcache"
	"github.com/octet-run/octet/model/layers"
	"github.com/octet-run/octet/model/load"
)

// VerifyBench says which verify pass to time: one rank's part of a model, without
// the other ranks.
type VerifyBench struct {
	Files   *checkpoint.Files // checkpoint.Synthetic makes weights up
	Model   model.Config
	Shard   model.Shard
	Threads int
	Device  string // PCI address of the GPU to time; empty: the CPU
	Tokens  []int  // passes of so many rows, as chains
	Context int    // positions in the cache before them
	Repeats int    // of each pass; the median counts
}

// VerifyRow is the time of a pass beside the time to read once what it must: weights,
// of experts those that were chosen, and the cache.
type VerifyRow struct {
	Tokens int
	Time   time.Duration
	Floor  time.Duration
	Bytes  int // that the pass must read
}

// VerifyResult is what RunVerifyBench measured.
type VerifyResult struct {
	Rows        []VerifyRow
	WeightBytes int     // of all weights, every expert included
	Bandwidth   float64 // bytes a second of the same device reading
}

// RunVerifyBench times verify passes. The sizes take turns, so that a machine that
// slows down does so for all.
func RunVerifyBench(b VerifyBench) (result VerifyResult, err error) {
	backend, gpu, err := b.open()
	if err != nil {
		return VerifyResult{}, err
	}
	defer func() { err = errors.Join(err, backend.Close()) }()
	most := max(slices.Max(b.Tokens), benchChunk)
	blocks := (b.Context+most)/kernels.BlockTokens + 1
	counting := &routed{Backend: backend}
	target, _, err := load.Target(b.Files, b.Model, b.Shard, model.Options{
		Blocks: blocks, MaxPositions: b.Context + most, MaxRows: most,
	}, counting, layers.Alone{Backend: counting, As: b.Shard}, checkpoint.LoadConfig{})
	if err != nil {
		return VerifyResult{}, err
	}
	run := benchRun{VerifyBench: b, backend: backend, counting: counting, gpu: gpu, target: target}
	if run.sequence, err = fill(target, backend, kvcache.New(blocks), b.Context); err != nil {
		return VerifyResult{}, err
	}
	defer func() {
		if run.probe != nil {
			err = errors.Join(err, run.probe.Close())
		}
	}()
	return run.measure()
}

// open opens what the bench runs on; gpu is nil for a CPU.
func (b *VerifyBench) open() (backend kernels.Backend, gpu device, err error) {
	if b.Device == "" {
		backend, err = cpu.New(cpu.Config{Threads: b.Threads})
		return backend, nil, err
	}
	gpu, err = openDevice(&Config{Devices: []string{b.Device}}, 0, nil)
	return gpu, gpu, err
}

// benchRun is a bench whose model is loaded.
type benchRun struct {
	VerifyBench
	backend  kernels.Backend
	counting *routed
	gpu      device
	target   model.Model
	sequence *kvcache.Sequence
	probe    *cpu.ReadProbe // nil on a GPU, and until it is first used
}

func (r *benchRun) measure() (VerifyResult, error) {
	result := VerifyResult{WeightBytes: r.target.PassBytes()}
	times := make([][]time.Duration, len(r.Tokens))
	for _, tokens := range r.Tokens {
		row := VerifyRow{Tokens: tokens}
		err := r.with(tokens, func(b *kernels.Batch) error {
			unread, err := r.counting.unread(func() { r.pass(b) })
			row.Bytes = result.WeightBytes - unread + r.cacheBytes(tokens)
			return err
		})
		if err != nil {
			return result, fmt.Errorf("pass of %d rows: %w", tokens, err)
		}
		result.Rows = append(result.Rows, row)
	}
	passes, err := r.record()
	if err != nil {
		return result, err
	}
	var bandwidths []float64
	for range r.Repeats {
		// A pass follows a pass where a rank serves. After the probe the addresses of
		// the weights have to be translated anew, which is not the pass's to pay.
		if _, err := r.timePass(r.Tokens[0], passes[0]); err != nil {
			return result, errors.Join(err, closeAll(passes))
		}
		for i, tokens := range r.Tokens {
			took, err := r.timePass(tokens, passes[i])
			if err != nil {
				return result, errors.Join(err, closeAll(passes))
			}
			times[i] = append(times[i], took)
		}
		bandwidth, err := r.bandwidth(result.WeightBytes)
		if err != nil {
			return result, errors.Join(err, closeAll(passes))
		}
		bandwidths = append(bandwidths, bandwidth)
	}
	slices.Sort(bandwidths)
	result.Bandwidth = bandwidths[len(bandwidths)/2]
	for i := range result.Rows {
		slices.Sort(times[i])
		result.Rows[i].Time = times[i][len(times[i])/2]
		result.Rows[i].Floor = time.Duration(float64(result.Rows[i].Bytes) / result.Bandwidth * 1e9)
	}
	return result, closeAll(passes)
}

// record makes a graph of each pass on a GPU, nothing on a CPU.
func (r *benchRun) record() ([]recording, error) {
	passes := make([]recording, len(r.Tokens))
	if r.gpu == nil {
		return passes, nil
	}
	for i, tokens := range r.Tokens {
		err := r.with(tokens, func(b *kernels.Batch) error {
			var err error
			passes[i], err = r.gpu.record(b, func() { r.pass(b) })
			return errors.Join(err, r.gpu.Sync())
		})
		if err != nil {
			return nil, errors.Join(err, closeAll(passes))
		}
	}
	return passes, nil
}

func closeAll(passes []recording) error {
	var errs []error
	for _, p := range passes {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	return errors.Join(errs...)
}

// cacheBytes is what a pass reads of the cache and writes of logits on this rank.
func (r *benchRun) cacheBytes(tokens int) int {
	c := r.target.Config()
	values := 2 * (c.Attention.KVHeads + r.Shard.Ranks - 1) / r.Shard.Ranks * c.Attention.HeadDim
	if c.Latent != nil {
		values = c.Latent.KVRank + c.Latent.Rope
	}
	return (r.Context+tokens)*values*c.Layers*r.backend.Activation().Bytes() +
		4*tokens*r.target.VocabWidths()[r.Shard.Rank]
}

func (r *benchRun) bandwidth(weights int) (float64, error) {
	if r.gpu != nil {
		return r.gpu.readBandwidth()
	}
	if r.probe == nil {
		probe, err := r.backend.(*cpu.Backend).NewReadProbe(min(weights, bandwidthBytes))
		if err != nil {
			return 0, err
		}
		r.probe = probe
	}
	return r.probe.Measure(), nil
}

// bandwidthBytes is how much memory the bandwidth is measured on: more than caches
// hold.
const bandwidthBytes = 512 << 20

// benchChunk is how many rows at a time fill the cache.
const benchChunk = 64

// fill puts context positions into the cache.
func fill(target model.Model, backend kernels.Backend, cache *kvcache.Cache, context int) (*kvcache.Sequence, error) {
	sequence := cache.NewSequence()
	for done := 0; done < context; {
		n := min(benchChunk, context-done)
		var batch kernels.Batch
		if err := sequence.Append(&batch, benchTokens(n, done, target.Config().Vocab)); err != nil {
			return nil, err
		}
		target.Forward(&batch)
		if err := backend.Sync(); err != nil {
			return nil, err
		}
		sequence.Commit(n)
		done += n
	}
	return sequence, nil
}

// with takes a chain of so many rows into the sequence, and back when do is done.
func (r *benchRun) with(rows int, do func(*kernels.Batch) error) error {
	var batch kernels.Batch
	if err := r.sequence.Append(&batch, benchTokens(rows, r.sequence.Committed(), r.target.Config().Vocab)); err != nil {
		return err
	}
	defer r.sequence.Rollback()
	return do(&batch)
}

// pass enqueues a pass, logits included.
func (r *benchRun) pass(b *kernels.Batch) { r.target.Logits(r.target.Forward(b).Hidden, nil) }

// timePass runs a chain of so many rows, by its graph if there is one.
func (r *benchRun) timePass(rows int, graph recording) (took time.Duration, err error) {
	err = r.with(rows, func(b *kernels.Batch) error {
		start := time.Now()
		if graph == nil {
			r.pass(b)
		} else if !r.gpu.replay(graph, b) {
			return errors.New("the graph is out of date")
		}
		err := r.backend.Sync()
		took = time.Since(start)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("pass of %d rows: %w", rows, err)
	}
	return took, nil
}

// benchTokens are different ones, so that experts and embeddings are, too.
func benchTokens(n, from, vocab int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32((from + i + 1) * 7919 % vocab)
	}
	return tokens
}
