// Package cpu runs kernels.Backend on the cores of one rank. Activations and
// sums are float32; weights stay in the format of the checkpoint and are
// widened in registers.
//
// # Same bits everywhere
//
// Every routine exists in plain Go (the files oracle_*.go), which defines its
// order of additions, and the AVX2 and AVX-512 versions reproduce that order
// exactly. A product followed by a sum is always one fused multiply-add; the Go
// version emulates it without double rounding (fma32). So one group may mix
// instruction sets, and a faster machine may replay a slower one's log.
//
// A sum over n values is kept in 16 lanes, which end in the tree
//
//	s[i] = l[i] + l[i+8]   (i < 8)
//	t[i] = s[i] + s[i+4]   (i < 4)
//	(t[0] + t[1]) + (t[2] + t[3])
//
// Which lane a value goes to depends on the storage of the weights, and within
// a lane values are added in rising order:
//
//	F32, F16    lane k mod 16
//	BF16        lane (k mod 32)/2: a 32-bit load holds an even and an odd value
//	INT4Group   lane (k mod 128)/8: a 32-bit load holds eight nibbles. The
//	            eight products are summed first, then scaled into the lane.
//	FP8Block    lane (k mod 128) mod 16, k counted from the start of the first
//	            block. Each block's products are summed first, then scaled.
//
// Squares (RMSNorm) are summed so over segments of NormSegment values, and the
// segment sums are added in order.
//
// Attention splits positions into spans of AttentionSpan, by absolute position.
// Within a span: scores, their maximum, exponentials, their sum (lane position
// mod 16) and the weighted sum of values in rising position. Spans are merged
// in order with the usual rescaling. A row's keys are positions 0..Committed-1
// through the page table, then its ancestors at Committed and up, so a row of a
// tree, of a chain and alone yields the same bits.
//
// # Ownership
//
// A Backend is used from one thread, the rank's engine thread. Calls run to
// their end before they return, which satisfies the enqueueing contract; shape
// errors are kept for Sync. Memory comes from anonymous mappings outside the Go
// heap and is unmapped by Close. With Threads above one the Backend owns a team
// of goroutines that Close ends.
package cpu
