package rank

import (
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
	Tokens  []int // passes of so many rows, as chains
	Context int   // positions in the cache before them
	Repeats int   // of each pass; the median counts
}

// VerifyRow is the time of a pass beside the time to read its weights once.
type VerifyRow struct {
	Tokens int
	Time   time.Duration
	Floor  time.Duration
}

// VerifyResult is what RunVerifyBench measured.
type VerifyResult struct {
	Rows        []VerifyRow
	WeightBytes int     // that one pass reads
	Bandwidth   float64 // bytes a second of the same threads reading
}

// RunVerifyBench times verify passes. The sizes take turns, so that a machine that
// slows down does so for all.
func RunVerifyBench(b VerifyBench) (VerifyResult, error) {
	backend, err := cpu.New(cpu.Config{Threads: b.Threads})
	if err != nil {
		return VerifyResult{}, err
	}
	defer backend.Close()
	most := max(slices.Max(b.Tokens), benchChunk)
	blocks := (b.Context+most)/kernels.BlockTokens + 1
	alone := layers.Alone{Backend: backend, As: b.Shard}
	target, _, err := load.Target(b.Files, b.Model, b.Shard, model.Options{
		Blocks: blocks, MaxPositions: b.Context + most, MaxRows: most,
	}, backend, alone, checkpoint.LoadConfig{})
	if err != nil {
		return VerifyResult{}, err
	}
	sequence, err := fill(target, backend, kvcache.New(blocks), b.Context)
	if err != nil {
		return VerifyResult{}, err
	}
	result := VerifyResult{WeightBytes: target.PassBytes()}
	var bandwidths []float64
	times := make([][]time.Duration, len(b.Tokens))
	for range b.Repeats {
		for i, tokens := range b.Tokens {
			took, err := timePass(target, backend, sequence, tokens)
			if err != nil {
				return result, err
			}
			times[i] = append(times[i], took)
		}
		bandwidth, err := cpu.MeasureReadBandwidth(b.Threads, min(result.WeightBytes, bandwidthBytes))
		if err != nil {
			return result, err
		}
		bandwidths = append(bandwidths, bandwidth)
	}
	slices.Sort(bandwidths)
	result.Bandwidth = bandwidths[len(bandwidths)/2]
	floor := time.Duration(float64(result.WeightBytes) / result.Bandwidth * 1e9)
	for i, tokens := range b.Tokens {
		slices.Sort(times[i])
		result.Rows = append(result.Rows, VerifyRow{Tokens: tokens, Time: times[i][len(times[i])/2], Floor: floor})
	}
	return result, nil
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

// timePass runs a chain of so many rows, logits included, and takes it back.
func timePass(target model.Model, backend kernels.Backend, sequence *kvcache.Sequence, rows int) (time.Duration, error) {
	var batch kernels.Batch
	if err := sequence.Append(&batch, benchTokens(rows, sequence.Committed(), target.Config().Vocab)); err != nil {
		return 0, err
	}
	defer sequence.Rollback()
	start := time.Now()
	out := target.Forward(&batch)
	target.Logits(out.Hidden, nil)
	if err := backend.Sync(); err != nil {
		return 0, fmt.Errorf("pass of %d rows: %w", rows, err)
	}
	return time.Since(start), nil
}

// benchTokens are different ones, so that experts and embeddings are, too.
func benchTokens(n, from, vocab int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32((from + i + 1) * 7919 % vocab)
	}
	return tokens
}
