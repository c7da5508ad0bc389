package kernels

// Format says how the weights of a Matrix are stored.
type Format uint8

// The weight formats of the checkpoints that Octet loads.
const (
	// Plain weights are Data as it is: F32, BF16 or F16.
	Plain Format = iota
	// FP8Block weights are Data in F8E4M3 times one F32 scale per 128x128 block,
	// ragged at the edges. Scale is [ceil(Out/128), ceil(In/128)] for the block
	// grid of this shard; RowPhase and ColPhase say where in its first block the
	// shard begins.
	FP8Block
	// INT4Group weights are packed eight to an int32, lowest nibble first, value
	// (nibble-8) times the scale of its group of 32 along In. Data is I32
	// [Out, In/8], Scale BF16 (or F16, F32) [Out, In/32].
	INT4Group
)

// Matrix is a linear layer's weight on this rank: y[o] = sum_i W[o,i] x[i] + Bias[o].
type Matrix struct {
	Format Format
	Out    int
	In     int
	Data   Tensor // [Out, In] in the format's packing
	Scale  Tensor // see Format
	Bias   Tensor // [1, Out] any float dtype, or zero

	RowPhase int // FP8Block: first row's offset inside its 128-row block
	ColPhase int // FP8Block: first column's offset inside its 128-column block
}

// Bytes is what one pass over the weights reads.
func (m Matrix) Bytes() int { return m.Data.ByteLen() + m.Scale.ByteLen() + m.Bias.ByteLen() }

// Product is one matrix product, Dst[t,o] = sum_i X[t,i] W[o,i] + bias[o].
type Product struct {
	Dst, X Tensor
	W      Matrix
}
