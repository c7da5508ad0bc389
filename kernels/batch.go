package kernels

// BlockTokens is the number of positions in one page of the KV cache.
const BlockTokens = 16

// Batch describes the rows of one forward pass. Rows of one sequence are
// adjacent. All slices are host memory; BeginPass carries them to the device.
type Batch struct {
	Tokens    []int32    // [rows] token ids
	Positions []int32    // [rows] absolute positions (RoPE)
	Slots     []int32    // [rows] where the row's key and value go: block*BlockTokens + offset
	Sequences []Sequence // which rows belong together and what they may see
}

// Sequence is the part of a Batch that belongs to one request.
type Sequence struct {
	First     int     // first row
	Rows      int     // number of rows
	Committed int     // positions [0, Committed) are in the cache and seen by every row
	Blocks    []int32 // page table: position p of the committed prefix is at Blocks[p/BlockTokens]

	// Scratch is the cache slots of rows of earlier passes that are not committed:
	// the nodes a drafter has run so far in a round. At most 64 with Rows.
	Scratch []int32

	// Ancestors has one set per row, of the sequence's own rows that the row may
	// see, itself included: bit j stands for Scratch[j], and bit len(Scratch)+j
	// for row j of this batch. Parents come before children, so the bits in rising
	// order are the path from the root, and the n-th set bit is at position
	// Committed+n. nil means causal: row i sees rows 0..i; Scratch is then empty.
	Ancestors []uint64
}

// KV is one layer's cache on one rank.
type KV struct {
	K Tensor // [slots, kvHeads*headDim]; for MLA [slots, latent+rope]
	V Tensor // [slots, kvHeads*headDim]; empty for MLA
}

// Heads says which query heads a rank computes and which of its key heads each reads.
type Heads struct {
	Query    int     // query heads on this rank
	Dim      int     // values per head of query and key
	ValueDim int     // values per head of value
	KV       int     // key/value heads on this rank
	KVOf     []int32 // [Query] local key head of each local query head
}

// Rope is one rotary embedding: tables of the model, style of the architecture.
type Rope struct {
	Cos         Tensor // F32 [maxPositions, Dim/2]
	Sin         Tensor // F32 [maxPositions, Dim/2]
	Dim         int    // rotated values per head
	Interleaved bool   // pairs (2i, 2i+1) instead of (i, i+Dim/2)
}

// Router is how a mixture-of-experts layer picks experts.
type Router struct {
	Experts   int
	TopK      int
	Sigmoid   bool // sigmoid scores (DeepSeek) instead of softmax (Qwen)
	Groups    int  // experts are in this many groups; 0 or 1 for none
	TopGroups int  // groups kept
	Normalize bool // divide the chosen weights by their sum
	Scale     float32
	Bias      Tensor // F32 [1, Experts] added to the score for the choice alone, or zero
}
