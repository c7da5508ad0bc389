package main

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/octet-run/octet/collectives/boxsim"
	"github.com/octet-run/octet/collectives/topology"
	"github.com/octet-run/octet/deploy/boxes"
	"github.com/octet-run/octet/model/shapes"
)

// The boxes of the hypotheses.
const (
	directBox    = "rtx-pro-6000x8"
	collapsedBox = "rtx-pro-6000x8-broadcom"
)

// simulateSettings are the flags of simulate.
type simulateSettings struct {
	box, model, tokens, acceptance, svg string
	ranks, context                      int
	sibling, draftUS                    float64
	observedTokens                      int
	hypotheses, accuracy                bool
}

func newSimulate() *cobra.Command {
	var s simulateSettings
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Predict all-reduces, verify passes and tokens per second on a box that need not be here",
		Long: "Runs the step programs of our all-reduces on a virtual clock over the links of a box, and answers which\n" +
			"number of tokens, tree and algorithm suit a model there, and what today's stacks give. Nothing is measured;\n" +
			"--accuracy shows how well measured points are reproduced.",
		Example: "  octet simulate --box rtx-pro-6000x8 --model kimi-k2.5\n" +
			"  octet simulate --box rtx-pro-6000x8-broadcom --model kimi-k2.5 --hypotheses --svg kimi.svg\n" +
			"  octet topo --json > mybox.json; octet simulate --box mybox.json --model llama-3-8b",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return simulate(cmd, &s) },
	}
	flags := cmd.Flags()
	flags.StringVar(&s.box, "box", directBox, "box JSON, or one of "+strings.Join(boxes.Names(), ", "))
	flags.StringVar(&s.model, "model", "kimi-k2.5", "folder with config.json, or one of "+strings.Join(shapes.Names(), ", "))
	flags.IntVar(&s.ranks, "ranks", 0, "ranks (default: one for each GPU, or 8 processes)")
	flags.StringVar(&s.tokens, "tokens", "1,2,3,4,5,6,8,12,16,24,32,64", "tokens in a verify pass, the root included")
	flags.IntVar(&s.context, "context", 4096, "committed positions of the sequence")
	flags.StringVar(&s.acceptance, "acceptance", "0.80,0.75,0.72,0.70",
		"chance that a draft is accepted once its parent was, by depth; what is the default was seen of EAGLE-3 on Kimi-K2.5, 3.0 to 3.2 tokens a round with 3 or 4 drafts (vllm#35966, ROCm/ATOM#631)")
	flags.Float64Var(&s.sibling, "sibling", 0.35, "chance that a further choice is right when those before it are wrong")
	flags.Float64Var(&s.draftUS, "draft-us", 250, "microseconds of one step of the drafter")
	flags.BoolVar(&s.hypotheses, "hypotheses", false, "test the known causes of an observed slowdown (always for eight PCIe-only GPUs)")
	flags.IntVar(&s.observedTokens, "observed-tokens", boxsim.Seed().Tokens, "tokens in a verify pass of the observed slowdown, which are not known")
	flags.BoolVar(&s.accuracy, "accuracy", false, "fit the box's constant again and compare with every measured point")
	flags.StringVar(&s.svg, "svg", "", "also draw three pictures into this file")
	return cmd
}

// loadBox reads a box from a file, or one of those in the program.
func loadBox(name string) (*topology.Box, error) {
	if info, err := os.Stat(name); err == nil && !info.IsDir() {
		box, err := topology.ReadFile(name)
		if err != nil {
			return nil, usageError{err}
		}
		return box, nil
	}
	box, err := boxes.Load(name)
	if err != nil {
		return nil, usageError{err}
	}
	return box, nil
}

// simulated is what simulate answers.
type simulated struct {
	Box        string              `json:"box"`
	Assumed    string              `json:"assumed,omitempty"` // of a box without rates
	Model      string              `json:"model"`
	Ranks      int                 `json:"ranks"`
	Context    int                 `json:"context"`
	Acceptance []float64           `json:"acceptance"`
	Rows       []boxsim.Row        `json:"rows"`
	Best       boxsim.Row          `json:"best"`
	Islands    []int               `json:"islands,omitempty"`
	Plan       string              `json:"plan"` // the hash of the predicted one
	Predicted  []boxsim.Predicted  `json:"predicted"`
	Today      []boxsim.Today      `json:"today,omitempty"`
	Observed   *boxsim.Observed    `json:"observed,omitempty"`
	Hypotheses []boxsim.Hypothesis `json:"hypotheses,omitempty"`
}

func simulate(cmd *cobra.Command, s *simulateSettings) error {
	box, err := loadBox(s.box)
	if err != nil {
		return err
	}
	var assumed string
	if box.Fabric == nil {
		if assumed, err = assumeFabric(box); err != nil {
			return err
		}
	}
	if s.accuracy {
		return simulateAccuracy(cmd, box)
	}
	d, err := s.decode(box)
	if err != nil {
		return err
	}
	out := simulated{Assumed: assumed, Box: box.Name, Model: d.Model.Name, Ranks: d.Ranks, Context: d.Context, Acceptance: d.Draft.Acceptance}
	if out.Rows, out.Best, err = d.Rows(); err != nil {
		return err
	}
	if out.Today, err = d.Today(); err != nil {
		return err
	}
	prediction, err := boxsim.Predict(box, d.Ranks)
	if err != nil {
		return err
	}
	out.Islands, out.Plan, out.Predicted = prediction.Shape.Islands, fmt.Sprintf("%016x", prediction.Plan().Hash()), prediction.Choices
	if s.hypotheses || seedLike(box, d) {
		if err := out.hypothesise(d, s.observedTokens); err != nil {
			return err
		}
	}
	if s.svg != "" {
		if err := drawSimulation(s.svg, d, out); err != nil {
			return err
		}
	}
	if wantJSON(cmd) {
		return printJSON(cmd, out)
	}
	return out.print(cmd)
}

// decode turns the flags into a question.
func (s *simulateSettings) decode(box *topology.Box) (boxsim.Decode, error) {
	d := boxsim.Decode{Box: box, Ranks: s.ranks, Context: s.context}
	if s.ranks < 0 {
		return d, usagef("--ranks %d: a group has 1 to 8 ranks", s.ranks)
	}
	if d.Ranks == 0 {
		if d.Ranks = min(len(box.GPUs()), 8); d.Ranks == 0 {
			d.Ranks = 8
		}
	}
	tokens, err := parseIDs(s.tokens)
	if err != nil {
		return d, usagef("--tokens %q: give numbers, such as 1,4,16", s.tokens)
	}
	for _, t := range tokens {
		d.Tokens = append(d.Tokens, int(t))
	}
	d.Draft = boxsim.Draft{Sibling: s.sibling, StepUS: s.draftUS}
	for _, text := range strings.Split(s.acceptance, ",") {
		a, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		if err != nil {
			return d, usagef("--acceptance %q: give chances by depth, such as 0.8,0.7", s.acceptance)
		}
		d.Draft.Acceptance = append(d.Draft.Acceptance, a)
	}
	if s.observedTokens < 1 {
		return d, usagef("--observed-tokens must be positive")
	}
	if d.Model, err = simulatedModel(s.model, d.Ranks); err != nil {
		return d, err
	}
	if err := d.Validate(); err != nil {
		return d, usageError{err}
	}
	return d, nil
}

// seedLike reports whether a question is about the kind of box on which
// speculation was seen to be slower.
func seedLike(box *topology.Box, d boxsim.Decode) bool {
	return len(box.GPUs()) == 8 && len(box.NVLinks) == 0 && d.Ranks == 8 && strings.HasPrefix(d.Model.Name, "kimi-k2")
}

func (o *simulated) hypothesise(d boxsim.Decode, tokens int) error {
	direct, err := boxes.Load(directBox)
	if err != nil {
		return err
	}
	collapsed, err := boxes.Load(collapsedBox)
	if err != nil {
		return err
	}
	d.Ranks = 8
	seen := boxsim.Seed()
	seen.Tokens = tokens
	o.Observed = &seen
	o.Hypotheses, err = boxsim.Hypotheses(d, seen, direct, collapsed)
	return err
}

func (o *simulated) print(cmd *cobra.Command) error {
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "%s on %s, %s, %d positions; predicted, not measured\n\n", o.Model, o.Box, countOf(o.Ranks, "rank"), o.Context)
	if o.Assumed != "" {
		fmt.Fprintf(out, "%s\n\n", o.Assumed)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TOKENS\tALGORITHM\tPATH\tBYTES\tALL-REDUCE us\tVERIFY ms\tFLOOR ms\tTREE\tEMITTED\tTOKENS/s")
	for _, r := range o.Rows {
		fmt.Fprintf(w, "%d\t%s\t%s\t%d\t%.1f\t%.2f\t%.2f\t%s\t%.2f\t%.1f\n", r.Tokens, r.Algorithm, r.Path, r.Bytes, r.AllReduceUS, r.VerifyMS, r.ComputeMS, treeText(r.Tree), r.Emitted, r.TokensPerS)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nbest: %d tokens, %s, %s by %s path: %.1f tokens/s\n", o.Best.Tokens, treeText(o.Best.Tree), o.Best.Algorithm, o.Best.Path, o.Best.TokensPerS)
	fmt.Fprintf(w, "\nPLAN %s\tFUSED\tALGORITHM\tPATH\tTHERE us\n", o.Plan)
	for _, c := range o.Predicted {
		fused := ""
		if c.Fused {
			fused = "yes"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.1f\n", sizesUpTo(c.MaxBytes), fused, c.Algorithm, c.Path, c.US)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(o.Today) > 0 {
		fmt.Fprintln(w, "\nTODAY\tAS IT COMES\tALL-REDUCE us, 1 TOKEN\tTOKENS/s PLAIN\tBEST WITH DRAFTS\tNOTE")
		for _, t := range o.Today {
			fmt.Fprintf(w, "%s\t%v\t%.1f\t%.1f\t%.1f at %d\t%s\n", t.Stack, t.Available, t.Plain.AllReduceUS, t.Plain.TokensPerS, t.Best.TokensPerS, t.Best.Tokens, t.Note)
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	return o.printHypotheses(cmd)
}

func (o *simulated) printHypotheses(cmd *cobra.Command) error {
	if len(o.Hypotheses) == 0 {
		return nil
	}
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "\nSeen: %.0f tokens/s without and %.0f with speculation, %.0f ms in verify. What would explain it (none is claimed):\n",
		o.Observed.Plain, o.Observed.Speculative, o.Observed.VerifyMS)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "HYPOTHESIS\tALL-REDUCE us T=1\tT=16\tPLAIN tokens/s\tSPECULATIVE, T=%d\tMISFIT\tBEST FIT\tOCTET THERE\n", o.Observed.Tokens)
	for _, h := range o.Hypotheses {
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.0f (%+.0f%%)\t%.0f (%+.0f%%)\t%.0f%%\t%.0f%% at T=%d\t%.0f tokens/s, %s by %s path, %d tokens\n", h.Name, h.T1US, h.T16US,
			h.Plain, 100*h.PlainError, h.Speculative, 100*h.SpeculativeError, 100*h.Misfit, 100*h.BestMisfit, h.BestTokens, h.Octet.TokensPerS, h.Octet.Algorithm, h.Octet.Path, h.Octet.Tokens)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, h := range o.Hypotheses {
		fmt.Fprintf(out, "\n%s: %s.\n  to find out: %s.\n  with Octet: %s.\n", h.Name, h.Cause, h.Measurement, h.OctetNote)
	}
	return nil
}

func treeText(t boxsim.Tree) string {
	switch {
	case t.Steps == 0:
		return "no draft"
	case t.TopK == 1:
		return fmt.Sprintf("chain of %d", t.Steps)
	}
	return fmt.Sprintf("tree topk=%d steps=%d", t.TopK, t.Steps)
}

// simulateAccuracy fits the box's constant again and compares.
func simulateAccuracy(cmd *cobra.Command, box *topology.Box) error {
	series, err := boxsim.Calibrations()
	if err != nil {
		return err
	}
	value, err := boxsim.Fit(box, series)
	if err != nil {
		return refusedError{err}
	}
	all, err := boxsim.Compare(box, series)
	if err != nil {
		return err
	}
	if wantJSON(cmd) {
		var rows []map[string]any
		for _, c := range all {
			rows = append(rows, map[string]any{
				"stack": c.Series.Stack, "algorithm": c.Series.Algorithm, "ranks": c.Series.Ranks, "source": c.Series.Source,
				"bytes": c.Point.Bytes, "use": c.Point.Use, "measured_us": c.Point.US, "simulated_us": c.US, "line_us": c.LineUS,
			})
		}
		return printJSON(cmd, map[string]any{"box": box.Name, "fitted": box.Fabric.Fitted, "value": value, "rows": rows})
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s: %s = %.4g fits the calibration points best\n\n", box.Name, box.Fabric.Fitted, value)
	fmt.Fprintln(w, "STACK\tALGORITHM\tRANKS\tBYTES\tUSE\tMEASURED us\tSIMULATED us\tERROR\tLINE OF THE BOX\tLINE OF THE STACK")
	for _, c := range all {
		own := "-"
		if !math.IsNaN(c.OwnLineUS) {
			own = fmt.Sprintf("%+.0f%%", 100*(c.OwnLineUS/c.Point.US-1))
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%.1f\t%.1f\t%+.0f%%\t%+.0f%%\t%s\n", c.Series.Stack, cmp.Or(c.Series.Algorithm, "its fastest"), c.Series.Ranks, c.Point.Bytes, c.Point.Use,
			c.Point.US, c.US, 100*c.Error(), 100*(c.LineUS/c.Point.US-1), own)
	}
	return w.Flush()
}
