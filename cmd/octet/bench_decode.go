package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/octet-run/octet/actors"
	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/coordinator"
	"github.com/octet-run/octet/model/nano"
)

// decodeSettings are the flags of bench decode, besides the group's.
type decodeSettings struct {
	prompts   string
	maxTokens int
}

func newBenchDecode() *cobra.Command {
	var group groupSettings
	var s decodeSettings
	cmd := &cobra.Command{
		Use:   "decode",
		Short: "Time speculation against the baseline, prompt by prompt in turns, in one group",
		Long: "Every prompt is continued in every mode before the next prompt. The first mode is the baseline.\n" +
			"The prompts are a JSON list of texts or of lists of token ids, or a text file with a prompt a line.",
		Example: "  octet bench decode --model llama-3-8b --draft llama-3-8b-eagle3 --prompts prompts.json --speculate off,eagle3",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return benchDecode(cmd, &group, &s) },
	}
	group.register(cmd.Flags())
	flags := cmd.Flags()
	flags.Lookup("speculate").Usage = "modes to compare, the baseline first"
	flags.Lookup("speculate").DefValue = "off,auto"
	group.speculate = "off,auto"
	flags.StringVar(&s.prompts, "prompts", "", "file with the prompts (default: held-out ones, with the embedded model)")
	flags.IntVar(&s.maxTokens, "max-tokens", 128, "tokens to generate from each")
	return cmd
}

// decodeRun is what one mode did over all prompts.
type decodeRun struct {
	mode     coordinator.Mode
	rates    []float64 // tokens a second, by prompt
	accepted []int
	seconds  float64
	tokens   int
}

func benchDecode(cmd *cobra.Command, group *groupSettings, s *decodeSettings) error {
	var runs []*decodeRun
	for _, name := range strings.Split(group.speculate, ",") {
		mode, err := coordinator.ParseMode(name)
		if err != nil {
			return usageError{fmt.Errorf("--speculate: %w", err)}
		}
		runs = append(runs, &decodeRun{mode: mode})
	}
	group.speculate = "auto"
	if s.prompts == "" && group.model != "" {
		return usagef("no prompts: give a file with --prompts")
	}
	if s.maxTokens < 2 {
		return usagef("--max-tokens must be at least 2, got %d", s.maxTokens)
	}
	r, err := startGroup(cmd.Context(), group, startOptions{status: cmd.ErrOrStderr(), restart: actors.Restart{Disabled: true}})
	if err != nil {
		return interrupted(cmd.Context(), err)
	}
	defer r.stop()
	prompts, err := s.read(r)
	if err != nil {
		return err
	}
	// The first passes touch cold weights, in whatever mode they run.
	for _, run := range runs {
		if err := decodeOnce(cmd.Context(), r, &decodeRun{mode: run.mode}, prompts[0], s.maxTokens); err != nil {
			return interrupted(cmd.Context(), err)
		}
	}
	for i, prompt := range prompts {
		for j := range runs {
			// Who goes first takes turns, too.
			if err := decodeOnce(cmd.Context(), r, runs[(i+j)%len(runs)], prompt, s.maxTokens); err != nil {
				return interrupted(cmd.Context(), err)
			}
		}
	}
	return printDecodeBench(cmd, runs)
}

func decodeOnce(ctx context.Context, r *running, run *decodeRun, prompt []int32, maxTokens int) error {
	drafting, err := r.settings.drafting()
	if err != nil {
		return err
	}
	drafting.Mode = run.mode
	all, err := r.complete(ctx, coordinator.Request{
		Prompt: prompt, MaxTokens: maxTokens, IgnoreEOS: true, Drafting: drafting, Sampling: round.Sampling{Logprobs: -1},
	})
	if err != nil {
		return err
	}
	decode := all.Finish.Timings.Decode
	run.rates = append(run.rates, perSecond(len(all.Tokens)-1, decode))
	run.accepted = append(run.accepted, all.Finish.Accepted...)
	run.seconds += decode.Seconds()
	run.tokens += len(all.Tokens) - 1
	return nil
}

func printDecodeBench(cmd *cobra.Command, runs []*decodeRun) error {
	base := runs[0]
	var rows []map[string]any
	for _, run := range runs {
		rows = append(rows, map[string]any{
			"mode": run.mode.String(), "tokens_per_s": float64(run.tokens) / run.seconds,
			"mean_acceptance_length": meanOf(run.accepted), "ratio": medianRatio(run.rates, base.rates),
		})
	}
	ratio := rows[len(rows)-1]["ratio"]
	if wantJSON(cmd) {
		return printJSON(cmd, map[string]any{"rows": rows, "ratio": ratio, "prompts": len(base.rates)})
	}
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "MODE\tTOKENS/s\tTOKENS A ROUND\tRATIO (MEDIAN OF PROMPTS)")
	for _, row := range rows {
		fmt.Fprintf(table, "%s\t%.1f\t%.2f\t%.3f\n", row["mode"], row["tokens_per_s"], row["mean_acceptance_length"], row["ratio"])
	}
	return table.Flush()
}

// medianRatio compares two modes prompt by prompt.
func medianRatio(rates, base []float64) float64 {
	ratios := make([]float64, len(rates))
	for i := range rates {
		ratios[i] = rates[i] / max(base[i], 1e-9)
	}
	slices.Sort(ratios)
	middle := len(ratios) / 2
	if len(ratios)%2 == 0 {
		return (ratios[middle-1] + ratios[middle]) / 2
	}
	return ratios[middle]
}

// read is the prompts that were named, or those that come with the embedded pair.
func (s *decodeSettings) read(r *running) ([][]int32, error) {
	if s.prompts != "" {
		return readPrompts(s.prompts, r)
	}
	embedded, err := nano.BenchPrompts()
	prompts := make([][]int32, len(embedded))
	for i, p := range embedded {
		prompts[i] = p.IDs
	}
	return prompts, err
}

// readPrompts reads a JSON list of texts or of lists of token ids, or a text file
// with a prompt a line.
func readPrompts(path string, r *running) ([][]int32, error) {
	data, err := readInput(path)
	if err != nil {
		return nil, err
	}
	var ids [][]int32
	if json.Unmarshal(data, &ids) == nil {
		return ids, noneEmpty(path, ids)
	}
	var texts []string
	if json.Unmarshal(data, &texts) != nil {
		for line := range strings.Lines(string(data)) {
			if line = strings.TrimSpace(line); line != "" {
				texts = append(texts, line)
			}
		}
	}
	config := r.coordinator.Config()
	for _, text := range texts {
		prompt, err := config.EncodePrompt(text)
		if err != nil {
			return nil, err
		}
		ids = append(ids, prompt)
	}
	return ids, noneEmpty(path, ids)
}

func noneEmpty(path string, prompts [][]int32) error {
	if len(prompts) == 0 {
		return usagef("%s holds no prompts", path)
	}
	for i, p := range prompts {
		if len(p) == 0 {
			return usagef("%s: prompt %d is empty", path, i+1)
		}
	}
	return nil
}
