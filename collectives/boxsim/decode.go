package boxsim

import (
	"fmt"

	"github.com/octet-run/octet/collectives"
	"github.com/octet-run/octet/collectives/topology"
)

// Decode is a question: how fast does this box decode this model?
type Decode struct {
	Box     *topology.Box
	Model   Model
	Ranks   int
	Context int   // committed positions
	Tokens  []int // verified in a pass, the root included
	Draft   Draft
}

// kernelsPerLayer is how many kernels a decode pass launches in a layer besides
// the all-reduces; 900 for the 61 layers of Kimi-K2.5.
const kernelsPerLayer = 13

// Row is one answer: so many tokens in a pass, reduced by one algorithm.
type Row struct {
	Tokens      int     `json:"tokens"`
	Algorithm   string  `json:"algorithm"`
	Path        string  `json:"path"`  // peer: from GPU to GPU; host: through host memory; shared: one memory
	Bytes       int     `json:"bytes"` // of one all-reduce
	AllReduceUS float64 `json:"allreduce_us"`
	VerifyMS    float64 `json:"verify_ms"`
	ComputeMS   float64 `json:"compute_ms"` // the floor: bytes read / rate of memory
	LaunchMS    float64 `json:"launch_ms"`
	Tree        Tree    `json:"tree"`
	Emitted     float64 `json:"acceptance_length"`
	TokensPerS  float64 `json:"tokens_per_s"`
}

// pass is the parts of a verify pass, in microseconds.
type pass struct {
	compute, launch, reduce float64
}

func (p pass) us() float64 { return p.compute + p.launch + p.reduce }

// pass is a pass over so many tokens in which an all-reduce takes reduceUS.
func (d *Decode) pass(tokens int, reduceUS float64) pass {
	p := pass{reduce: reduceUS * float64(d.Model.AllReduces())}
	bytes := d.Model.PassBytes(tokens, d.Context, d.Ranks)
	if device := d.Box.Fabric.Device; device != nil {
		p.compute = bytes / (device.MemoryGBps * bytesPerUS)
		p.launch = device.GraphLaunchUS * float64(kernelsPerLayer*d.Model.Layers)
		return p
	}
	// Processes share the memory of the machine.
	p.compute = bytes * float64(d.Ranks) / (d.Box.Fabric.CPU.MemoryGBps * bytesPerUS)
	return p
}

func (d *Decode) reduce(s Stack, algorithm string, tokens int) Config {
	c := Config{Box: d.Box, Ranks: d.Ranks, Stack: s, Algorithm: algorithm, Fused: s.Exact}
	c.Bytes = d.Model.PayloadBytes(tokens, c.wireBytes())
	return c
}

// Validate says what is wrong with the question, or nil.
func (d *Decode) Validate() error {
	if len(d.Tokens) == 0 || len(d.Draft.Acceptance) == 0 {
		return fmt.Errorf("no numbers of tokens or no acceptance given")
	}
	for _, t := range d.Tokens {
		if t < 1 || t > 512 {
			return fmt.Errorf("%d tokens in a pass: want 1 to 512", t)
		}
	}
	for _, a := range append([]float64{d.Draft.Sibling}, d.Draft.Acceptance...) {
		if a < 0 || a > 1 {
			return fmt.Errorf("an acceptance of %g: want 0 to 1", a)
		}
	}
	if d.Context < 0 || d.Draft.StepUS < 0 {
		return fmt.Errorf("context and the drafter's time must not be negative")
	}
	c := Config{Box: d.Box, Ranks: d.Ranks}
	return c.validate()
}

// Rows answers for every number of tokens and every algorithm of ours that can
// run, and says which row decodes fastest.
func (d *Decode) Rows() (rows []Row, best Row, err error) {
	if err := d.Validate(); err != nil {
		return nil, Row{}, err
	}
	for _, tokens := range d.Tokens {
		for _, stack := range ours(d.Box) {
			for _, a := range collectives.Algorithms() {
				c := d.reduce(stack, a.Name, tokens)
				if !a.Exact || c.Admits(a.Name) != nil {
					continue
				}
				row, err := d.row(c, tokens)
				if err != nil {
					return nil, Row{}, err
				}
				rows = append(rows, row)
				if row.TokensPerS > best.TokensPerS {
					best = row
				}
			}
		}
	}
	return rows, best, nil
}

// ours is our ways on the box: from peer to peer, and through host memory where
// the box says what that costs and has no better link.
func ours(box *topology.Box) []Stack {
	all := Stacks()
	if box.Fabric.Host == nil || len(box.NVLinks) > 0 {
		return all[:1]
	}
	return all[:2]
}

func (c *Config) path() string {
	switch {
	case c.Box.Fabric.Device == nil:
		return "shared"
	case c.Stack.Host:
		return "host"
	}
	return "peer"
}

// row simulates one all-reduce and finds the tree that suits the pass.
func (d *Decode) row(c Config, tokens int) (Row, error) {
	r, err := Run(c)
	if err != nil {
		return Row{}, err
	}
	p := d.pass(tokens, r.US)
	row := Row{
		Tokens: tokens, Algorithm: r.Algorithm, Path: c.path(), Bytes: c.Bytes, AllReduceUS: r.US,
		VerifyMS: p.us() / 1e3, ComputeMS: p.compute / 1e3, LaunchMS: p.launch / 1e3,
	}
	for _, t := range shapes(tokens) {
		emitted := d.Draft.Emitted(t)
		speed := emitted / (p.us() + float64(t.Steps)*d.Draft.StepUS) * 1e6
		if speed > row.TokensPerS {
			row.Tree, row.Emitted, row.TokensPerS = t, emitted, speed
		}
	}
	return row, nil
}

// Today is what another stack gives on the same box.
type Today struct {
	Stack     string `json:"stack"`
	Summary   string `json:"summary"`
	Note      string `json:"note"`
	Plain     Row    `json:"plain"` // one token a pass
	Best      Row    `json:"best"`
	Available bool   `json:"available"` // without patches or switches of one's own
}

// Today answers for the stacks in use.
func (d *Decode) Today() ([]Today, error) {
	if d.Box.Fabric.Device == nil {
		return nil, nil
	}
	linked := len(d.Box.NVLinks) > 0
	list := []Today{
		{Stack: "nccl-host", Available: true, Note: "SGLang and vLLM switch their custom all-reduce off on more than two PCIe-only GPUs and use NCCL, " +
			"which goes through host memory between root ports unless told otherwise"},
		{Stack: "nccl", Note: "with NCCL_P2P_LEVEL=SYS and channels tuned by hand"},
		{Stack: "one-stage", Note: "the custom all-reduce, forced on"},
	}
	switch {
	case linked:
		list = []Today{
			{Stack: "nccl", Available: true, Note: "over NVLink"},
			{Stack: "one-stage", Available: true, Note: "the custom all-reduce of SGLang and vLLM, at small sizes"},
		}
	case d.Ranks == 8:
		list = append(list, Today{Stack: "island-sentinel", Note: "opt-in (sglang#34528); partial sums across islands are rounded"})
	}
	for i := range list {
		t := &list[i]
		s, err := FindStack(t.Stack)
		if err != nil {
			return nil, err
		}
		t.Summary = s.Summary
		for _, tokens := range d.Tokens {
			row, err := d.row(d.reduce(s, "", tokens), tokens)
			if err != nil {
				return nil, err
			}
			if tokens == 1 {
				t.Plain = row
			}
			if row.TokensPerS > t.Best.TokensPerS {
				t.Best = row
			}
		}
	}
	return list, nil
}
