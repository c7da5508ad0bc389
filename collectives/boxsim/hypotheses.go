package boxsim

import (
	"fmt"
	"math"

	"github.com/octet-run/octet/collectives/topology"
)

// Observed is what somebody saw on a box: with speculation slower than without.
type Observed struct {
	Plain       float64 `json:"tokens_per_s_plain"`
	Speculative float64 `json:"tokens_per_s_speculative"`
	CycleMS     float64 `json:"cycle_ms"`  // one round with speculation
	VerifyMS    float64 `json:"verify_ms"` // the verify pass of it
	Tokens      int     `json:"tokens"`    // verified in a pass, as far as known
}

// Seed is the observation that Octet was begun for. How many tokens were verified
// in a pass is not known.
func Seed() Observed {
	return Observed{Plain: 82, Speculative: 60, CycleMS: 31, VerifyMS: 30, Tokens: 16}
}

// emitted is the tokens of a round, which follow from what was seen.
func (o Observed) emitted() float64 { return o.Speculative * o.CycleMS / 1e3 }

// Hypothesis is a cause that would explain an observation, how well it does, and
// how to find out. It is no finding.
type Hypothesis struct {
	Name        string  `json:"name"`
	Cause       string  `json:"cause"`
	T1US        float64 `json:"allreduce_us_t1"`  // with the wait for late ranks
	T16US       float64 `json:"allreduce_us_t16"` // the same
	Plain       float64 `json:"tokens_per_s_plain"`
	Speculative float64 `json:"tokens_per_s_speculative"`
	// Misfit is the root mean square of both relative errors.
	PlainError       float64 `json:"plain_error"`
	SpeculativeError float64 `json:"speculative_error"`
	Misfit           float64 `json:"misfit"`
	// BestTokens is the number of tokens in a verify pass with which the hypothesis
	// would fit best, and BestMisfit how well.
	BestTokens  int     `json:"best_tokens"`
	BestMisfit  float64 `json:"best_misfit"`
	Measurement string  `json:"measurement"` // that would confirm it, or not
	Octet       Row     `json:"octet"`       // best with our algorithms there
	OctetNote   string  `json:"octet_note"`
}

// cause is a hypothesis and how it is simulated.
type cause struct {
	Hypothesis
	box       *topology.Box
	stack     string
	hostOnly  bool // peers cannot be reached
	skew      bool // a rank is late in every pass
	ungraphed bool // verify passes are launched kernel by kernel
}

// verifySizes are the usual numbers of tokens in a verify pass.
func verifySizes() []int { return []int{2, 3, 4, 5, 6, 8, 12, 16} }

// The launch of a kernel by a Python stack outside a graph: the plain launch and
// what torch adds to a call, 16.6 us against 7.9 in the same graph.
const torchCallUS = 8.7

// Hypotheses tests the known causes: direct is the box without and collapsed one
// with a regime of collapse.
func Hypotheses(d Decode, o Observed, direct, collapsed *topology.Box) ([]Hypothesis, error) {
	causes := []cause{
		{
			Hypothesis: Hypothesis{
				Name: "collapsed fabric", Cause: "posted writes of several GPUs through one switch to several root ports collapse; NCCL's rings run over all pairs",
				Measurement: "octet tune probes every pair alone and with all others, by stores and by loads; a collapse shows in stores alone and only under load",
				OctetNote:   "the plan takes what measures best on the collapsed links, host memory included",
			}, box: collapsed, stack: "nccl-spread",
		},
		{
			Hypothesis: Hypothesis{
				Name: "host bounce", Cause: "NCCL goes through host memory, its default between root ports and sockets",
				Measurement: "the graph-captured all-reduce by size: 14 hops of a host round trip are 45 to 60 us at any small size; NCCL_DEBUG=INFO says SHM; NCCL_P2P_LEVEL=SYS changes it",
				OctetNote:   "even if peers cannot be reached: one host hop instead of 14",
			}, box: direct, stack: "nccl-host", hostOnly: true,
		},
		{
			Hypothesis: Hypothesis{
				Name: "skew", Cause: "the fabric is fine; fast ranks spin inside the all-reduce for a slow one (its share of compute is set so that the plain rate fits)",
				Measurement: "per call the minimum and maximum over ranks: the transfer is the minimum; octet profile separates transfer and skew in every pass",
				OctetNote:   "a faster all-reduce does not cure skew; it shows it, and names the rank",
			}, box: direct, stack: "nccl", skew: true,
		},
		{
			Hypothesis: Hypothesis{
				Name: "un-graphed verify", Cause: "decode is captured in a graph, verify is launched kernel by kernel; waits for late launches count as all-reduce",
				Measurement: "the reduction replaced by a no-op: the pass keeps its length; T identical tokens cost as much as T different ones",
				OctetNote:   "every pass is captured",
			}, box: direct, stack: "nccl", ungraphed: true,
		},
	}
	var out []Hypothesis
	for _, c := range causes {
		h, err := c.test(d, o)
		if err != nil {
			return nil, fmt.Errorf("hypothesis %s: %w", c.Name, err)
		}
		out = append(out, h)
	}
	return out, nil
}

func (c cause) test(d Decode, o Observed) (Hypothesis, error) {
	d.Box = c.box
	h := c.Hypothesis
	stack, err := FindStack(c.stack)
	if err != nil {
		return h, err
	}
	var late float64 // of the compute between two all-reduces
	passes := map[int]pass{}
	for _, tokens := range append([]int{1, 16, o.Tokens}, verifySizes()...) {
		r, err := Run(d.reduce(stack, "", tokens))
		if err != nil {
			return h, err
		}
		p := d.pass(tokens, r.US)
		if c.skew {
			if tokens == 1 {
				late = max(0, 1e6/o.Plain-p.us()) / p.compute
			}
			p.reduce += late * p.compute
		}
		if c.ungraphed && tokens > 1 {
			p = d.launched(p)
		}
		passes[tokens] = p
	}
	calls := float64(d.Model.AllReduces())
	h.T1US, h.T16US = passes[1].reduce/calls, passes[16].reduce/calls
	for _, tokens := range append([]int{o.Tokens}, verifySizes()...) {
		h.fit(o, passes[1], passes[tokens])
		if h.BestTokens == 0 || h.Misfit < h.BestMisfit {
			h.BestTokens, h.BestMisfit = tokens, h.Misfit
		}
	}
	h.fit(o, passes[1], passes[o.Tokens])
	h.Octet, err = c.ours(d, late)
	return h, err
}

// fit compares two passes with what was seen.
func (h *Hypothesis) fit(o Observed, plain, verify pass) {
	draft := (o.CycleMS - o.VerifyMS) * 1e3
	h.Plain = 1e6 / plain.us()
	h.Speculative = o.emitted() / (verify.us() + draft) * 1e6
	h.PlainError, h.SpeculativeError = h.Plain/o.Plain-1, h.Speculative/o.Speculative-1
	h.Misfit = math.Sqrt((h.PlainError*h.PlainError + h.SpeculativeError*h.SpeculativeError) / 2)
}

// launched is a pass whose kernels are launched one by one: it is as long as its
// launches if they are longer than its work, and what it waits for them is seen in
// the all-reduces.
func (d *Decode) launched(p pass) pass {
	device := d.Box.Fabric.Device
	kernels := float64(kernelsPerLayer*d.Model.Layers + d.Model.AllReduces())
	p.launch = 0
	launches := kernels * (device.PlainLaunchUS + torchCallUS)
	p.reduce += max(0, launches-p.us())
	return p
}

// ours is the best that our algorithms give on the ways that the hypothesis leaves,
// with a rank that is late all the same.
func (c cause) ours(d Decode, late float64) (Row, error) {
	rows, _, err := d.Rows()
	if err != nil {
		return Row{}, err
	}
	var best Row
	for _, row := range rows {
		if c.hostOnly && row.Path != "host" {
			continue
		}
		row.VerifyMS += late * row.ComputeMS
		row.TokensPerS = row.Emitted / (row.VerifyMS*1e3 + float64(row.Tree.Steps)*d.Draft.StepUS) * 1e6
		if row.TokensPerS > best.TokensPerS {
			best = row
		}
	}
	return best, nil
}
