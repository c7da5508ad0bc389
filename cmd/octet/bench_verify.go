package main

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/checkpoint"
	"github.com/octet-run/octet/model/shapes"
	"github.com/octet-run/octet/rank"
)

// verifySettings are the flags of bench verify.
type verifySettings struct {
	model, shape, shard, tokens, backend string
	threads, context, repeats            int
}

func newBenchVerify() *cobra.Command {
	var s verifySettings
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Time one rank's verify pass beside the time to read once what it must",
		Long: "The floor counts the weights, of experts those that the rows really chose, the cache and the logits, at the\n" +
			"bandwidth of reads alone, measured in the same run. On a GPU a pass is one graph.",
		Example: "  octet bench verify --shape llama-3-8b --shard 0/8 --tokens 1,4,8,16\n" +
			"  octet bench verify --model big --threads 2",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return benchVerify(cmd, &s) },
	}
	flags := cmd.Flags()
	flags.StringVar(&s.model, "model", "", "folder of a checkpoint; its weights are read")
	flags.StringVar(&s.shape, "shape", "", "published shapes with random weights: "+strings.Join(shapes.Names(), ", "))
	flags.StringVar(&s.shard, "shard", "0/1", "which rank's part of how many: I/N")
	flags.StringVar(&s.tokens, "tokens", "1,4,8,16,32,64", "rows of the passes")
	flags.StringVar(&s.backend, "backend", "auto", "cpu, cuda, or auto, which is cpu")
	flags.IntVar(&s.threads, "threads", 1, "threads of the rank")
	flags.IntVar(&s.context, "context", 256, "positions in the cache before the pass")
	flags.IntVar(&s.repeats, "repeats", 7, "passes of each size; the median counts")
	return cmd
}

func benchVerify(cmd *cobra.Command, s *verifySettings) error {
	if s.backend != "auto" && s.backend != "cpu" && s.backend != "cuda" {
		return usagef("--backend %q: choose auto, cpu or cuda", s.backend)
	}
	if s.threads < 1 || s.threads > maxThreads || s.repeats < 1 || s.context < 0 {
		return usagef("--threads must be from 1 to %d, --repeats positive, --context not negative", maxThreads)
	}
	if (s.model == "") == (s.shape == "") {
		return usagef("say what to time: --shape with random weights, or --model with a checkpoint's")
	}
	shard, err := parseShard(s.shard)
	if err != nil {
		return err
	}
	tokens, err := parseIDs(s.tokens)
	if err != nil || len(tokens) == 0 {
		return usagef("--tokens %q: give numbers of rows, such as 1,4,16", s.tokens)
	}
	bench := rank.VerifyBench{Shard: shard, Threads: s.threads, Context: s.context, Repeats: s.repeats}
	for _, n := range tokens {
		if n < 1 || n > 512 {
			return usagef("--tokens: a pass has 1 to 512 rows, not %d", n)
		}
		bench.Tokens = append(bench.Tokens, int(n))
	}
	targets := []string{s.model}
	if s.shape != "" {
		targets = strings.Split(s.shape, ",")
	}
	if s.backend == "cuda" {
		gpus, err := findGPUs()
		if err != nil {
			return err
		}
		bench.Device = gpus[0].PCI
		// The device is used from one thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	return eachVerify(cmd, s, bench, targets)
}

func eachVerify(cmd *cobra.Command, s *verifySettings, bench rank.VerifyBench, targets []string) error {
	var rows []map[string]any
	for _, name := range targets {
		var err error
		if s.shape != "" {
			bench.Files = checkpoint.Synthetic(1)
			bench.Model, err = shapeConfig(name)
		} else if bench.Model, err = model.ReadConfig(name); err == nil {
			bench.Files, err = checkpoint.Open(name)
		}
		if err != nil {
			return err
		}
		result, err := rank.RunVerifyBench(bench)
		if closed := bench.Files.Close(); err == nil {
			err = closed
		}
		if err != nil {
			return err
		}
		for _, row := range result.Rows {
			rows = append(rows, map[string]any{
				"model": modelName(name), "shard": s.shard, "threads": s.threads, "tokens": row.Tokens,
				"ms": row.Time.Seconds() * 1e3, "floor_ms": row.Floor.Seconds() * 1e3,
				"ratio":        float64(row.Time) / float64(row.Floor),
				"weight_bytes": result.WeightBytes, "read_bytes": row.Bytes, "read_gb_s": result.Bandwidth / 1e9,
			})
		}
	}
	if wantJSON(cmd) {
		return printJSON(cmd, map[string]any{"rows": rows, "cpus": runtime.NumCPU()})
	}
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "MODEL\tSHARD\tTHREADS\tTOKENS\tms\tFLOOR ms\tRATIO\tWEIGHTS\tREADS AT")
	for _, r := range rows {
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%.2f\t%.2f\t%.2f\t%.2f GB\t%.1f GB/s\n", r["model"], r["shard"], r["threads"], r["tokens"],
			r["ms"], r["floor_ms"], r["ratio"], float64(r["weight_bytes"].(int))/1e9, r["read_gb_s"])
	}
	return table.Flush()
}

func shapeConfig(name string) (model.Config, error) {
	data, err := shapes.Config(name)
	if err != nil {
		return model.Config{}, usageError{err}
	}
	fields, err := model.ParseFields(name, data)
	if err != nil {
		return model.Config{}, err
	}
	return model.ParseConfig(fields)
}

func parseShard(text string) (model.Shard, error) {
	first, second, _ := strings.Cut(text, "/")
	i, err := strconv.Atoi(first)
	n, err2 := strconv.Atoi(second)
	shard := model.Shard{Rank: i, Ranks: n}
	if err != nil || err2 != nil || shard.Validate() != nil {
		return shard, usagef("--shard %q: write I/N, such as 0/8, with at most %d ranks", text, model.MaxRanks)
	}
	return shard, nil
}
