package simulation

import (
	"math"

	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/layers"
)

// The toy language model. The value of a position is 64 bits: a function of the
// last token and a bit of the one before it, so that text repeats and can be drafted, but in one context of
// six of all tokens so far. Logits are a function of the value.
const (
	vocab      = 32
	pieces     = 4 // of the value in the hidden row, 16 bits each
	private    = 6 // one context in so many
	layerCount = 2
)

// cell is what the toy model keeps of a position in its KV cache: the token, and
// the hash of all tokens up to it. Like keys and values it follows from the cell
// before, so that one wrong cell shows in everything after it.
type cell struct {
	token int32
	hash  uint64
}

func (c cell) next(token int32) cell { return cell{token, mix(c.hash ^ uint64(token)<<7)} }

// value is the model's output after a token whose predecessor was prev.
func (c cell) value(prev int32) uint64 {
	if c.hash%private == 0 {
		return mix(c.hash)
	}
	return mix(uint64(c.token)<<20 ^ uint64(prev&1)<<40 ^ 0x51)
}

// logit of a token, given the value.
func logit(value uint64, token int) float32 {
	if int(value%vocab) == token {
		return 7
	}
	return float32(mix(value^uint64(token)*0x9e3779b9)>>40) / (1 << 24) * 4
}

// mix is a step of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// toy is one rank's part of the toy model. Each rank brings a share of every
// value's pieces; only the sums over all ranks mean anything. It implements
// model.Model.
type toy struct {
	reducer layers.Reducer
	config  model.Config
	kv      []cell // by slot
	widths  []int
	// strike is called before the pass; poison makes its logits NaN.
	strike func()
	poison func() bool
}

func newToy(r layers.Reducer, blocks int) *toy {
	t := &toy{reducer: r, config: model.Config{Vocab: vocab}, kv: make([]cell, blocks*kernels.BlockTokens)}
	for rank := range r.Size() {
		t.widths = append(t.widths, vocab*(rank+1)/r.Size()-vocab*rank/r.Size())
	}
	return t
}

func (t *toy) Config() *model.Config { return &t.config }
func (t *toy) VocabWidths() []int    { return t.widths }
func (t *toy) PassBytes() int        { return 1 }

// MoveKV copies cells.
func (t *toy) MoveKV(from, to []int32) {
	for i := range from {
		t.kv[to[i]] = t.kv[from[i]]
	}
}

// Forward reduces every row's value twice, as a model of two layers would.
func (t *toy) Forward(b *kernels.Batch) model.Output {
	t.strike()
	values := make([]uint64, 0, len(b.Tokens))
	for i := range b.Sequences {
		values = t.attend(values, b, &b.Sequences[i])
	}
	for range layerCount {
		sum := t.reducer.AllReduce(t.shares(values))
		for row := range values {
			values[row] = whole(sum.F32Row(row))
		}
		if poisoned(sum) {
			return model.Output{Hidden: sum}
		}
		for row := range values {
			values[row] = mix(values[row])
		}
	}
	return model.Output{Hidden: t.reducer.AllReduce(t.shares(values))}
}

// attend stores the rows of a sequence and appends their values.
func (t *toy) attend(values []uint64, b *kernels.Batch, s *kernels.Sequence) []uint64 {
	before := cell{}
	if last := s.Committed - 1; last >= 0 {
		before = t.kv[s.Blocks[last/kernels.BlockTokens]*kernels.BlockTokens+int32(last%kernels.BlockTokens)]
	}
	for i := range s.Rows {
		row, parent := s.First+i, before
		if p := parentOf(s, i); p >= 0 {
			parent = t.kv[b.Slots[s.First+p]]
		}
		here := parent.next(b.Tokens[row])
		t.kv[b.Slots[row]] = here
		values = append(values, here.value(parent.token))
	}
	return values
}

// parentOf is the row of the sequence before row i, -1 if that is committed.
func parentOf(s *kernels.Sequence, i int) int {
	if s.Ancestors == nil {
		return i - 1
	}
	for p := i - 1; p >= 0; p-- {
		if s.Ancestors[i]&(1<<p) != 0 {
			return p
		}
	}
	return -1
}

// shares is this rank's part of the values: [rows, pieces], whole numbers.
func (t *toy) shares(values []uint64) kernels.Tensor {
	partial := t.reducer.Partial(len(values), pieces)
	for row, value := range values {
		out := partial.F32Row(row)
		for j := range out {
			if t.reducer.Rank() > 0 {
				out[j] = share(value, t.reducer.Rank(), j)
				continue
			}
			out[j] = float32(value >> (16 * j) & 0xffff)
			for r := 1; r < t.reducer.Size(); r++ {
				out[j] -= share(value, r, j)
			}
		}
	}
	return partial
}

func share(value uint64, rank, piece int) float32 {
	return float32(mix(value^uint64(rank*pieces+piece)) & 0x3ff)
}

// whole puts the pieces of a value together.
func whole(row []float32) (value uint64) {
	for j, piece := range row {
		value |= uint64(uint16(int64(piece))) << (16 * j)
	}
	return value
}

func poisoned(t kernels.Tensor) bool {
	for row := range t.Rows {
		for _, v := range t.F32Row(row) {
			if math.IsNaN(float64(v)) {
				return true
			}
		}
	}
	return false
}

// Logits are this rank's columns, of all rows if none are named.
func (t *toy) Logits(hidden kernels.Tensor, rows []int32) kernels.Tensor {
	if rows == nil {
		for row := range hidden.Rows {
			rows = append(rows, int32(row))
		}
	}
	first, width := 0, t.widths[t.reducer.Rank()]
	for _, w := range t.widths[:t.reducer.Rank()] {
		first += w
	}
	nan := poisoned(hidden) || t.poison()
	data := make([]float32, len(rows)*width)
	for i, row := range rows {
		value := whole(hidden.F32Row(int(row)))
		for column := range width {
			data[i*width+column] = logit(value, first+column)
			if nan {
				data[i*width+column] = float32(math.NaN())
			}
		}
	}
	return kernels.HostTensor(kernels.F32, len(rows), width, data)
}

var _ model.Model = (*toy)(nil)

// device is a backend of which only what the engine itself calls is there.
type device struct {
	kernels.Backend
	strike func() error // before the results of a pass are used
}

func (d *device) Name() string { return "simulated" }
func (d *device) Sync() error  { return d.strike() }
func (d *device) Close() error { return nil }
