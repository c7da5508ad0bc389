package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/octet-run/octet/actors"
	"github.com/octet-run/octet/coordinator"
	"github.com/octet-run/octet/model/nano"
)

func newProfile() *cobra.Command {
	var group groupSettings
	var settings generateSettings
	var trace string
	cmd := &cobra.Command{
		Use:   "profile [PROMPT]",
		Short: "Run one prompt and say where the time of every round went",
		Long: "Compute, transfer (inside the collectives), skew (waiting in them for other ranks), draft, and what the\n" +
			"coordinator adds, as rank 0 and the coordinator saw them.",
		Example: "  octet profile 'func reverse('\n  octet profile --model llama-3-8b --trace rounds.json 'Once upon a time'",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			args, err := settings.promptOr(nano.Prompt, group.model, args, cmd.Flags())
			if err != nil {
				return err
			}
			recorder := &roundRecorder{begin: time.Now()}
			r, err := startGroup(cmd.Context(), &group, startOptions{
				status: cmd.ErrOrStderr(), restart: actors.Restart{Disabled: true}, observer: recorder,
			})
			if err != nil {
				return interrupted(cmd.Context(), err)
			}
			defer r.stop()
			request, err := settings.request(r, args)
			if err != nil {
				return err
			}
			if _, err := r.complete(cmd.Context(), request); err != nil {
				return interrupted(cmd.Context(), err)
			}
			if trace != "" {
				if err := recorder.writeTrace(trace); err != nil {
					return err
				}
			}
			return recorder.print(cmd)
		},
	}
	group.register(cmd.Flags())
	settings.register(cmd.Flags())
	cmd.Flags().StringVar(&trace, "trace", "", "also write the rounds for a Chrome or Perfetto trace viewer")
	return cmd
}

// roundRecorder keeps every round's report.
type roundRecorder struct {
	begin time.Time

	mu     sync.Mutex
	rounds []recordedRound
}

type recordedRound struct {
	end    time.Duration // since the recorder began
	report coordinator.RoundReport
}

func (r *roundRecorder) RoundDone(report coordinator.RoundReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rounds = append(r.rounds, recordedRound{time.Since(r.begin), report})
}

func (*roundRecorder) RequestDone(*coordinator.Request, *coordinator.Finish) {}

// parts is one round's time in microseconds, in the order of the table.
func (r recordedRound) parts() []namedTime {
	t := r.report.Timings
	micros := func(ns int64) float64 { return float64(ns) / 1e3 }
	return []namedTime{
		{"draft_us", micros(t.Draft)},
		{"compute_us", micros(t.Compute)},
		{"transfer_us", micros(t.Transfer)},
		{"skew_us", micros(t.Skew)},
		{"launch_us", micros(t.Launch)},
		{"coordination_us", micros(int64(r.report.Elapsed) - t.Total)},
	}
}

type namedTime struct {
	name   string
	micros float64
}

func (r *roundRecorder) print(cmd *cobra.Command) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if wantJSON(cmd) {
		rows := []map[string]any{}
		for _, round := range r.rounds {
			row := map[string]any{
				"prefill_rows": round.report.PrefillRows, "verify_rows": round.report.VerifyRows, "emitted": round.report.Emitted,
				"total_us": round.report.Elapsed.Seconds() * 1e6,
			}
			for _, p := range round.parts() {
				row[p.name] = p.micros
			}
			rows = append(rows, row)
		}
		return printJSON(cmd, map[string]any{"rounds": rows})
	}
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "ROUND\tROWS\tEMITTED\t")
	for _, p := range (recordedRound{}).parts() {
		fmt.Fprintf(table, "%s\t", p.name)
	}
	fmt.Fprintln(table)
	for i, round := range r.rounds {
		fmt.Fprintf(table, "%d\t%d\t%d\t", i+1, round.report.PrefillRows+round.report.VerifyRows, round.report.Emitted)
		for _, p := range round.parts() {
			fmt.Fprintf(table, "%.0f\t", p.micros)
		}
		fmt.Fprintln(table)
	}
	return table.Flush()
}

// writeTrace writes the rounds in the trace event format: one track for rounds,
// one for their parts, which follow each other in the order of the table.
func (r *roundRecorder) writeTrace(path string) error {
	type event struct {
		Name  string  `json:"name"`
		Phase string  `json:"ph"`
		Start float64 `json:"ts"`
		Took  float64 `json:"dur"`
		PID   int     `json:"pid"`
		TID   int     `json:"tid"`
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	events := []event{}
	for i, round := range r.rounds {
		took := round.report.Elapsed.Seconds() * 1e6
		start := round.end.Seconds()*1e6 - took
		events = append(events, event{fmt.Sprintf("round %d", i+1), "X", start, took, 1, 1})
		for _, p := range round.parts() {
			events = append(events, event{p.name, "X", start, p.micros, 1, 2})
			start += p.micros
		}
	}
	data, err := json.Marshal(map[string]any{"traceEvents": events})
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}
