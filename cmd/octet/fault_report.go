package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/octet-run/octet/faults/audit"
)

// bounds are how soon losses must be noticed and the group must serve again. What
// is stuck shows only when nothing has moved for ten slow rounds.
func (r *faultRun) bounds() map[audit.Class]audit.Bound {
	if r.settings.slack == 0 {
		return nil
	}
	scaled := func(d time.Duration) time.Duration { return time.Duration(r.settings.slack * float64(d)) }
	stuck := max(250*time.Millisecond, 10*r.group.group.Status().RoundP99)
	return map[audit.Class]audit.Bound{
		audit.Death: {Noticed: scaled(20 * time.Millisecond), Serving: scaled(time.Second)},
		audit.Stuck: {Noticed: scaled(stuck), Serving: scaled(2 * time.Second)},
	}
}

// judge holds what was seen against the invariants, once everything is over.
func (r *faultRun) judge(before audit.Rest) {
	losses, served, formed := r.history.losses()
	var strikes []audit.Strike
	for _, s := range r.book.Strikes() {
		strikes = append(strikes, audit.Strike{Time: s.Time, Fault: s.Fault, Rank: s.Rank})
	}
	r.recoveries = r.audit.Recoveries(strikes, losses, served)
	r.audit.Bounds(audit.TimesOf(r.recoveries), r.bounds())
	if most := r.settings.restarts; most > 0 {
		r.audit.Restarts(formed, most, time.Minute)
	}
	after := settledRest(before)
	after.Blocks = r.traffic.blocksLeft
	r.audit.Rest(before, after)
	for who, g := range r.traffic.growth() {
		r.audit.Growth(who, g.Early, g.Late)
	}
}

// faultReport is the JSON form of a run.
type faultReport struct {
	Invariants []audit.Verdict                    `json:"invariants"`
	Unmet      []string                           `json:"unmet"`
	Events     []faultEvent                       `json:"events"`
	RecoveryMS map[audit.Class]map[string]timesMS `json:"recovery_ms"`
	Recoveries []recoveryMS                       `json:"recoveries"`
	Growth     map[string]growth                  `json:"growth"`
	Points     map[string]int                     `json:"strikes_by_point"`
	Strikes    int                                `json:"strikes"`
	Losses     int                                `json:"losses"`
	Rounds     uint64                             `json:"rounds"`
	Complete   int                                `json:"requests_complete"`
	Failed     int                                `json:"requests_failed"`
	FirstError string                             `json:"first_error,omitempty"`
	Tokens     int                                `json:"tokens"`
	Seconds    float64                            `json:"seconds"`
}

// faultEvent is a strike, or what the supervisor told.
type faultEvent struct {
	AtMS    float64 `json:"at_ms"`
	Kind    string  `json:"kind"`
	Rank    int     `json:"rank"`
	Epoch   uint32  `json:"epoch,omitempty"`
	Round   uint64  `json:"round,omitempty"`
	Message string  `json:"message"`
}

// recoveryMS is one loss: the fault behind it, and how soon it was over.
type recoveryMS struct {
	Fault   string      `json:"fault"`
	Class   audit.Class `json:"class"`
	Rank    int         `json:"rank"`
	Blamed  int         `json:"blamed"`
	Epoch   uint32      `json:"epoch"`
	Noticed float64     `json:"noticed_ms"`
	Serving float64     `json:"serving_ms"` // 0: not at all
}

type timesMS struct {
	N   int     `json:"n"`
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

func (r *faultRun) report(cmd *cobra.Command) error {
	report := r.summary()
	var err error
	if wantJSON(cmd) {
		err = printJSON(cmd, report)
	} else {
		report.draw(cmd.OutOrStdout())
	}
	switch {
	case err != nil:
		return err
	case !r.audit.Held():
		return errors.New("an invariant was broken")
	case len(report.Unmet) > 0:
		return errors.New(report.Unmet[0])
	}
	return nil
}

func (r *faultRun) summary() *faultReport {
	report := &faultReport{
		Invariants: r.audit.Verdicts(), Unmet: append([]string{}, r.unmet()...), Events: r.events(),
		RecoveryMS: map[audit.Class]map[string]timesMS{}, Recoveries: []recoveryMS{}, Growth: r.traffic.growth(), Points: map[string]int{}, Losses: len(r.recoveries),
		Rounds: r.book.RoundsDone(), Complete: r.traffic.complete, Failed: r.traffic.failed, FirstError: r.traffic.firstError,
		Tokens: r.traffic.tokens, Seconds: r.took.Seconds(),
	}
	for _, s := range r.book.Strikes() {
		report.Strikes++
		where := string(s.Fault.At)
		if where == "" {
			where = "process"
		}
		report.Points[where+" "+string(s.Fault.Do)]++
	}
	for _, c := range r.recoveries {
		report.Recoveries = append(report.Recoveries, recoveryMS{
			Fault: c.Fault.String(), Class: c.Class, Rank: c.Rank, Blamed: c.Blamed, Epoch: c.Epoch, Noticed: inMS(c.Noticed), Serving: inMS(c.Serving),
		})
	}
	for class, t := range audit.TimesOf(r.recoveries) {
		report.RecoveryMS[class] = map[string]timesMS{"noticed": percentilesMS(t.Noticed), "serving": percentilesMS(t.Serving)}
	}
	return report
}

func percentilesMS(p audit.Percentiles) timesMS {
	return timesMS{N: p.N, P50: inMS(p.P50), P99: inMS(p.P99)}
}

func inMS(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

// events are strikes and the supervisor's events, in order of time.
func (r *faultRun) events() []faultEvent {
	at := func(t time.Time) float64 { return inMS(t.Sub(r.began)) }
	events := []faultEvent{}
	for _, s := range r.book.Strikes() {
		events = append(events, faultEvent{AtMS: at(s.Time), Kind: "fault", Rank: s.Rank, Round: s.Round, Message: s.Fault.String()})
	}
	for _, e := range r.history.all() {
		events = append(events, faultEvent{AtMS: at(e.Time), Kind: string(e.Kind), Rank: e.Rank, Epoch: e.Epoch, Message: e.Message})
	}
	slices.SortStableFunc(events, func(a, b faultEvent) int {
		switch {
		case a.AtMS < b.AtMS:
			return -1
		case a.AtMS > b.AtMS:
			return 1
		}
		return 0
	})
	return events
}

func (r *faultReport) draw(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "\nfaults\t%d struck, %d ended an epoch\n", r.Strikes, r.Losses)
	fmt.Fprintf(table, "requests\t%d complete, %d failed; %d tokens in %d rounds, %.1f s\n", r.Complete, r.Failed, r.Tokens, r.Rounds, r.Seconds)
	for _, class := range slices.Sorted(maps.Keys(r.RecoveryMS)) {
		noticed, serving := r.RecoveryMS[class]["noticed"], r.RecoveryMS[class]["serving"]
		fmt.Fprintf(table, "%s\tnoticed p50 %.0f p99 %.0f ms, serving again p50 %.0f p99 %.0f ms (%d)\n",
			class, noticed.P50, noticed.P99, serving.P50, serving.P99, noticed.N)
	}
	for _, v := range r.Invariants {
		verdict := "held"
		switch {
		case !v.Held:
			verdict = "BROKEN: " + strings.Join(v.Breaches, "; ")
		case v.Checked == 0:
			verdict = "not at stake"
		}
		fmt.Fprintf(table, "%s\t%s\n", v.Name, verdict)
	}
	for _, u := range r.Unmet {
		fmt.Fprintf(table, "unmet\t%s\n", u)
	}
	_ = table.Flush()
}
