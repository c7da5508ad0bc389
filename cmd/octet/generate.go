package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/octet-run/octet/actors"
	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/coordinator"
	"github.com/octet-run/octet/model/nano"
)

// generateSettings are the flags of one request.
type generateSettings struct {
	promptIDs  string
	promptFile string
	maxTokens  int

	temperature, topP, minP float32
	repetition              float32
	presence, frequency     float32
	topK                    int32
	seed                    uint64
	stop                    []string
	logprobs                int32
	ignoreEOS               bool
}

func (s *generateSettings) register(flags *pflag.FlagSet) {
	flags.StringVar(&s.promptIDs, "prompt-ids", "", "prompt as token ids: 1,2,3")
	flags.StringVar(&s.promptFile, "prompt-file", "", "file with the prompt, - for standard input")
	flags.IntVar(&s.maxTokens, "max-tokens", 128, "most tokens to generate, 0 for as many as fit")
	flags.Float32Var(&s.temperature, "temperature", 0, "`number` by which logits are divided before a token is drawn; 0 always takes the likeliest")
	flags.Int32Var(&s.topK, "top-k", 0, "sample from the `k` likeliest tokens, 0 for all")
	flags.Float32Var(&s.topP, "top-p", 1, "sample from the likeliest tokens that make up this `probability`")
	flags.Float32Var(&s.minP, "min-p", 0, "leave out tokens less likely than this `share` of the likeliest")
	flags.Float32Var(&s.repetition, "repetition-penalty", 1, "a `number` above 1 makes tokens that occurred less likely")
	flags.Float32Var(&s.presence, "presence-penalty", 0, "`number` by which the logits of generated tokens are lowered")
	flags.Float32Var(&s.frequency, "frequency-penalty", 0, "`number` by which the logits of generated tokens are lowered for every time they came")
	flags.Uint64Var(&s.seed, "seed", 0, "seed of the sampling: the same one gives the same text")
	flags.StringArrayVar(&s.stop, "stop", nil, "end at this `text` (may be repeated)")
	flags.Int32Var(&s.logprobs, "logprobs", -1, "report log-probabilities, with this `many` alternatives a token; -1 reports none")
	flags.BoolVar(&s.ignoreEOS, "ignore-eos", false, "go on past the token that ends a text")
}

// request is the prompt and parameters as the coordinator takes them.
func (s *generateSettings) request(r *running, args []string) (coordinator.Request, error) {
	prompt, err := s.prompt(r, args)
	if err != nil {
		return coordinator.Request{}, err
	}
	return coordinator.Request{
		Prompt: prompt, MaxTokens: s.maxTokens, Stop: s.stop, IgnoreEOS: s.ignoreEOS,
		Sampling: round.Sampling{
			Temperature: s.temperature, TopK: s.topK, TopP: s.topP, MinP: s.minP, Seed: s.seed, Logprobs: s.logprobs,
			RepetitionPenalty: s.repetition, PresencePenalty: s.presence, FrequencyPenalty: s.frequency,
		},
	}, nil
}

// promptOr returns the command's arguments, valid ones. Where there is no prompt and
// the model is the embedded one, they are its example, which is sampled unless the
// user says how: the greedy text of so small a model soon repeats itself.
func (s *generateSettings) promptOr(example, model string, args []string, flags *pflag.FlagSet) ([]string, error) {
	if len(args) == 0 && model == "" && s.promptIDs == "" && s.promptFile == "" {
		args = []string{example}
		if !flags.Changed("temperature") && !flags.Changed("seed") {
			s.temperature, s.seed = 0.9, 1
		}
	}
	return args, s.validate(args)
}

// validate finds contradictions before a group is started.
func (s *generateSettings) validate(args []string) error {
	sources := len(args)
	for _, source := range []string{s.promptIDs, s.promptFile} {
		if source != "" {
			sources++
		}
	}
	switch {
	case sources == 0:
		return usagef("no prompt: give one as an argument, with --prompt-file or with --prompt-ids")
	case sources > 1:
		return usagef("give the prompt once: as an argument, with --prompt-file or with --prompt-ids")
	case len(args) == 1 && args[0] == "":
		return usagef("the prompt is empty")
	case s.repetition <= 0:
		return usagef("--repetition-penalty must be positive, got %v", s.repetition)
	case s.maxTokens < 0:
		return usagef("--max-tokens must not be negative, got %d", s.maxTokens)
	case s.topK < 0:
		return usagef("--top-k must not be negative, got %d", s.topK)
	}
	_, err := parseIDs(s.promptIDs)
	return err
}

func (s *generateSettings) prompt(r *running, args []string) ([]int32, error) {
	if s.promptIDs != "" {
		return parseIDs(s.promptIDs)
	}
	text := strings.Join(args, " ")
	if s.promptFile != "" {
		data, err := readInput(s.promptFile)
		if err != nil {
			return nil, err
		}
		text = string(data)
	}
	if text == "" {
		return nil, usagef("the prompt is empty")
	}
	c := r.coordinator.Config()
	return c.EncodePrompt(text)
}

func readInput(path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(os.Stdin)
	}
	data, err := os.ReadFile(path)
	var problem *fs.PathError
	if errors.As(err, &problem) {
		return nil, usagef("cannot read %s: %w", path, problem.Err)
	}
	return data, err
}

// parseIDs reads "1,2,3"; white space counts as a comma.
func parseIDs(text string) ([]int32, error) {
	var ids []int32
	for _, field := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(", \t\n[]", r) }) {
		id, err := strconv.ParseInt(field, 10, 32)
		if err != nil {
			return nil, usagef("%q is not a token id", field)
		}
		ids = append(ids, int32(id))
	}
	if text != "" && len(ids) == 0 {
		return nil, usagef("the prompt is empty")
	}
	return ids, nil
}

func newGenerate() *cobra.Command {
	var group groupSettings
	var settings generateSettings
	cmd := &cobra.Command{
		Use:   "generate [PROMPT]",
		Short: "Start a group, continue one prompt, and take the group down again",
		Example: "  octet generate 'func reverse('\n" +
			"  octet generate --model llama-3-8b --draft llama-3-8b-eagle3 'Once upon a time'\n" +
			"  octet generate --model llama-3-8b --temperature 0.8 --seed 7 --prompt-file essay.txt --json",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			args, err := settings.promptOr(nano.Prompt, group.model, args, cmd.Flags())
			if err != nil {
				return err
			}
			r, err := startGroup(cmd.Context(), &group, startOptions{
				status: cmd.ErrOrStderr(), restart: actors.Restart{Disabled: true},
			})
			if err != nil {
				return interrupted(cmd.Context(), err)
			}
			defer r.stop()
			request, err := settings.request(r, args)
			if err != nil {
				return err
			}
			return generate(cmd, r, request)
		},
	}
	group.register(cmd.Flags())
	settings.register(cmd.Flags())
	return cmd
}

// interrupted prefers the news that the user stopped the command to whatever
// error that led to.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

func generate(cmd *cobra.Command, r *running, request coordinator.Request) error {
	stream, err := r.coordinator.Generate(cmd.Context(), request)
	if err != nil {
		return err
	}
	defer stream.Close()
	out := cmd.OutOrStdout()
	quiet := wantJSON(cmd)
	var all coordinator.Event
	for all.Finish == nil {
		event, err := stream.Next(cmd.Context())
		if err != nil {
			return interrupted(cmd.Context(), err)
		}
		if !quiet {
			fmt.Fprint(out, event.Text)
		}
		all.Tokens, all.Text, all.Finish = append(all.Tokens, event.Tokens...), all.Text+event.Text, event.Finish
	}
	if err := all.Finish.Err; err != nil {
		if !quiet {
			fmt.Fprintln(out)
		}
		return interrupted(cmd.Context(), err)
	}
	if cmd.Context().Err() != nil {
		return errInterrupted
	}
	report := r.report(stream.Prompt(), &all)
	if quiet {
		return printJSON(cmd, report)
	}
	if r.tokenizer == nil {
		fmt.Fprint(out, joinIDs(report.TokenIDs))
	}
	fmt.Fprintln(out)
	fmt.Fprintln(cmd.ErrOrStderr(), report.summary())
	return nil
}

// generation is the JSON form of a finished request.
type generation struct {
	Model                string          `json:"model"`
	Ranks                int             `json:"ranks"`
	Backend              string          `json:"backend"`
	PromptIDs            []int32         `json:"prompt_ids"`
	TokenIDs             []int32         `json:"token_ids"`
	Text                 string          `json:"text"`
	FinishReason         string          `json:"finish_reason"`
	Logprobs             []tokenLogprobs `json:"logprobs"`
	Rounds               int             `json:"rounds"`
	AcceptedPerRound     []int           `json:"accepted_per_round"`
	MeanAcceptanceLength float64         `json:"mean_acceptance_length"`
	Timings              timings         `json:"timings"`
}

type tokenLogprobs struct {
	Token   int32          `json:"token"`
	Logprob float32        `json:"logprob"`
	Top     []tokenLogprob `json:"top"`
}

type tokenLogprob struct {
	Token   int32   `json:"token"`
	Logprob float32 `json:"logprob"`
}

type timings struct {
	LoadS      float64 `json:"load_s"`
	PrefillS   float64 `json:"prefill_s"`
	DecodeS    float64 `json:"decode_s"`
	TokensPerS float64 `json:"tokens_per_s"`
}

func (r *running) report(prompt []int32, all *coordinator.Event) *generation {
	f := all.Finish
	g := &generation{
		Model: r.settings.modelName(), Ranks: r.settings.ranks, Backend: r.settings.backendName(),
		PromptIDs: prompt, TokenIDs: []int32{}, Logprobs: []tokenLogprobs{}, Text: all.Text, FinishReason: f.Reason.String(),
		Rounds: f.Rounds(), AcceptedPerRound: f.Accepted, MeanAcceptanceLength: meanOf(f.Accepted),
		Timings: timings{
			LoadS: r.loaded.Seconds(), PrefillS: f.Timings.Prefill.Seconds(), DecodeS: f.Timings.Decode.Seconds(),
			TokensPerS: perSecond(len(all.Tokens)-1, f.Timings.Decode),
		},
	}
	if g.AcceptedPerRound == nil {
		g.AcceptedPerRound = []int{}
	}
	for _, t := range all.Tokens {
		g.TokenIDs = append(g.TokenIDs, t.ID)
		if t.Logprobs == nil {
			continue
		}
		entry := tokenLogprobs{Token: t.ID, Logprob: t.Logprobs.Logprob, Top: []tokenLogprob{}}
		for _, top := range t.Logprobs.Top {
			entry.Top = append(entry.Top, tokenLogprob{top.Token, top.Logprob})
		}
		g.Logprobs = append(g.Logprobs, entry)
	}
	return g
}

func (g *generation) summary() string {
	text := fmt.Sprintf("%s in %.2f s (%.0f tokens/s) on %s, loaded in %.2f s", countOf(len(g.TokenIDs), "token"),
		g.Timings.PrefillS+g.Timings.DecodeS, g.Timings.TokensPerS, countOf(g.Ranks, "rank"), g.Timings.LoadS)
	if g.Rounds > 0 {
		text += fmt.Sprintf(", %.2f tokens a round", g.MeanAcceptanceLength)
	}
	return text
}

func meanOf(x []int) float64 {
	if len(x) == 0 {
		return 0
	}
	sum := 0
	for _, v := range x {
		sum += v
	}
	return float64(sum) / float64(len(x))
}

// perSecond is the rate of what decoding made: the first token is the prefill's.
func perSecond(tokens int, d time.Duration) float64 {
	if d <= 0 || tokens <= 0 {
		return 0
	}
	return float64(tokens) / d.Seconds()
}

func joinIDs(ids []int32) string {
	parts := make([]string, len(ids))
	for i, id := range ids {
		parts[i] = strconv.Itoa(int(id))
	}
	return strings.Join(parts, ",")
}

func newLogits() *cobra.Command {
	var group groupSettings
	var ids string
	cmd := &cobra.Command{
		Use:     "logits --prompt-ids 1,2,3",
		Short:   "Run token ids through the target and print the likeliest token at each position",
		Example: "  octet logits --model llama-3-8b --ranks 4 --prompt-ids 1,2,3 --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			prompt, err := parseIDs(ids)
			if err != nil {
				return err
			}
			if len(prompt) == 0 {
				return usagef("no tokens: give them with --prompt-ids")
			}
			group.draft, group.speculate = "none", "off"
			r, err := startGroup(cmd.Context(), &group, startOptions{
				status: cmd.ErrOrStderr(), restart: actors.Restart{Disabled: true},
			})
			if err != nil {
				return interrupted(cmd.Context(), err)
			}
			defer r.stop()
			argmax, logits, err := r.coordinator.Score(cmd.Context(), prompt)
			if err != nil {
				return interrupted(cmd.Context(), err)
			}
			if wantJSON(cmd) {
				return printJSON(cmd, map[string]any{"argmax": argmax, "last_logits": logits})
			}
			fmt.Fprintln(cmd.OutOrStdout(), joinIDs(argmax))
			return nil
		},
	}
	group.register(cmd.Flags())
	for _, name := range []string{"draft", "draft-on", "speculate", "tree"} { // nothing is drafted
		_ = cmd.Flags().MarkHidden(name)
	}
	cmd.Flags().StringVar(&ids, "prompt-ids", "", "token ids: 1,2,3")
	return cmd
}
