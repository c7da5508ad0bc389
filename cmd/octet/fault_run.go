package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/octet-run/octet/actors"
	"github.com/octet-run/octet/actors/ledger"
	"github.com/octet-run/octet/coordinator"
	"github.com/octet-run/octet/faults"
	"github.com/octet-run/octet/faults/audit"
)

// faultSettings are the flags of a run with faults.
type faultSettings struct {
	streams  int
	tokens   int
	rounds   uint64
	strikes  uint64
	duration time.Duration
	seed     uint64
	restarts int
	slack    float64
}

func newFaultRun() *cobra.Command {
	var group groupSettings
	var s faultSettings
	cmd := &cobra.Command{
		Use:   "run SCRIPT",
		Short: "Run a group under load, let a script break it, and check that nothing shows",
		Long: "Run a group under load, let a script break it, and check that nothing shows.\n\n" +
			"Every stream first runs without faults. Then the script is armed, and what each stream\n" +
			"yields, greedy and sampled, must be the same again. The exit code is 0 if all invariants\n" +
			"and expectations held.",
		Example: "  octet fault run deploy/faults/kill-rank.fault\n" +
			"  octet fault run deploy/faults/soak.fault --for 30m --json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(group.validate(), s.validate()); err != nil {
				return err
			}
			text, err := readScript(cmd, args[0])
			if err != nil {
				return err
			}
			script, err := parseForRun(text, group.ranks)
			if err != nil {
				return usageError{fmt.Errorf("%s: %w", args[0], err)}
			}
			return runFaults(cmd, &group, &s, script)
		},
	}
	group.register(cmd.Flags())
	flags := cmd.Flags()
	flags.IntVar(&s.streams, "streams", 8, "requests that run at once; every other one samples")
	flags.IntVar(&s.tokens, "tokens", 96, "tokens of a request")
	flags.Uint64Var(&s.rounds, "rounds", 0, "go on for so many rounds (default: until every fault has struck)")
	flags.Uint64Var(&s.strikes, "strikes", 0, "go on until faults have struck so many times (default: until every fault has struck)")
	flags.DurationVar(&s.duration, "for", 0, "go on for so long (default: until every fault has struck)")
	flags.Uint64Var(&s.seed, "seed", 1, "of the sampling, and of the ranks chosen for rank=any")
	flags.IntVar(&s.restarts, "restarts", 0, "how often the group may form again within a minute (default: as often as it takes)")
	flags.Float64Var(&s.slack, "slack", 1, "multiply the time bounds, for machines with other work to do; 0: report only")
	return cmd
}

func (s *faultSettings) validate() error {
	switch {
	case s.streams < 1:
		return usagef("--streams %d: at least one request must run", s.streams)
	case s.tokens < 2:
		return usagef("--tokens %d: a fault in mid-sentence needs at least 2", s.tokens)
	case s.duration < 0 || s.restarts < 0 || s.slack < 0:
		return usagef("--for, --restarts and --slack must not be negative")
	}
	return nil
}

// The errors that a script can expect, by name.
var expectable = map[string]error{
	"GroupBroken": actors.ErrGroupBroken,
	"Injected":    faults.ErrInjected,
	"Closed":      coordinator.ErrClosed,
}

// parseForRun refuses what a run in the foreground cannot do, before it starts.
func parseForRun(text string, ranks int) (*faults.Script, error) {
	script, err := faults.Parse(text, ranks)
	if err != nil {
		return nil, err
	}
	for _, f := range script.Faults {
		if strikesRun(f) {
			return nil, &faults.SyntaxError{Line: f.Line, Column: f.Column, Problem: "this may end the supervisor, which here is the command itself: name a rank, or use octet serve --allow-faults and octet fault arm"}
		}
	}
	for _, e := range script.Expectations {
		if _, known := expectable[e.Error]; !e.Continue && !known && e.Error != "Sequence" {
			return nil, &faults.SyntaxError{Line: e.Line, Column: e.Column, Problem: fmt.Sprintf("%q is no error that a run can end with: GroupBroken, Sequence, Injected or Closed", e.Error)}
		}
	}
	if len(script.Faults) == 0 {
		return nil, errors.New("the script has no fault; octet fault list names what can be broken")
	}
	if most := ledger.Most; len(script.Faults) > most {
		f := script.Faults[most]
		return nil, &faults.SyntaxError{Line: f.Line, Column: f.Column, Problem: fmt.Sprintf("this is one fault too many: %d can be armed at a time", most)}
	}
	return script, nil
}

// strikesRun reports whether a fault may end the process that runs the script, or hold
// it for ever.
func strikesRun(f faults.Fault) bool {
	if f.Do.External() {
		return f.Rank == faults.Supervisor
	}
	switch f.Do {
	case faults.Abort, faults.Exit, faults.Panic:
	case faults.Hang, faults.Spin:
		if f.For > 0 {
			return false
		}
	default:
		return false
	}
	_, supervisor := f.At.Sides()
	return supervisor && f.Rank < 0
}

// faultRun is one run of a script.
type faultRun struct {
	settings *faultSettings
	script   *faults.Script
	group    *running
	book     *ledger.Book
	audit    *audit.Audit
	history  *history
	traffic  *traffic
	show     *showing

	began      time.Time
	took       time.Duration
	recoveries []audit.Recovery
}

func runFaults(cmd *cobra.Command, settings *groupSettings, s *faultSettings, script *faults.Script) error {
	book, err := ledger.NewBook(settings.ranks, s.seed)
	if err != nil {
		return err
	}
	defer book.Close()
	before := measureRest()
	run := &faultRun{settings: s, script: script, book: book, audit: audit.New(), history: &history{}}
	run.show = newShowing(cmd)
	options := startOptions{
		status: cmd.ErrOrStderr(), faults: book, replays: 1 << 20, observer: counted{book: book},
		restart: actors.Restart{Max: s.restarts, MaxPause: 100 * time.Millisecond},
		onEvent: run.event,
		view:    func(g coordinator.Group) coordinator.Group { return &watchedGroup{Group: g, audit: run.audit} },
	}
	if s.restarts == 0 {
		options.restart = actors.Restart{Max: 1 << 20, Pause: time.Millisecond, MaxPause: time.Millisecond}
	}
	if run.group, err = startGroup(cmd.Context(), settings, options); err != nil {
		return interrupted(cmd.Context(), err)
	}
	err = run.drive(cmd.Context())
	run.group.stop()
	if err != nil {
		return interrupted(cmd.Context(), err)
	}
	run.judge(before)
	return run.report(cmd)
}

func (r *faultRun) event(e actors.Event) {
	if r.history.add(e) {
		r.show.event(e)
	}
}

// drive runs the load without faults, then with them.
func (r *faultRun) drive(ctx context.Context) error {
	var err error
	if r.traffic, err = newTraffic(r.group, r.settings, r.audit, r.show); err != nil {
		return err
	}
	if err := r.traffic.reference(ctx); err != nil {
		return err
	}
	r.show.begin(r.settings.streams, r.group.settings.ranks)
	r.book.Restart()
	r.began = time.Now()
	r.history.begin(r.began)
	if _, err := r.book.Arm(r.script.Faults); err != nil {
		return err
	}
	injection := startInjection(r.book, r.group.group)
	probing := r.probe(ctx)
	err = r.traffic.run(ctx, r.over)
	injection.close()
	probing()
	r.took = time.Since(r.began)
	if err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	if _, err := r.group.group.WaitServing(wait); err != nil && r.group.group.Err() == nil {
		return fmt.Errorf("the group does not serve again: %w", err)
	}
	for deadline := time.Now().Add(restSettle); ; time.Sleep(10 * time.Millisecond) {
		r.traffic.blocksLeft = r.group.coordinator.Config().Blocks - r.group.coordinator.Stats().FreeBlocks
		if r.traffic.blocksLeft == 0 || time.Now().After(deadline) {
			return ctx.Err()
		}
	}
}

// settleLimit bounds the wait for a group that broke at the very end.
const settleLimit = 30 * time.Second

// strikeLimit bounds a run that waits for faults which never strike.
const strikeLimit = 10 * time.Minute

// over says whether the run has gone on for long enough.
func (r *faultRun) over() bool {
	elapsed := time.Since(r.began)
	switch {
	case r.settings.duration > 0 && elapsed >= r.settings.duration:
		return true
	case r.settings.rounds > 0 && r.book.RoundsDone() >= r.settings.rounds:
		return true
	case r.settings.strikes > 0 && r.struck() >= r.settings.strikes:
		return true
	case r.settings.bounded():
		return false
	}
	return elapsed >= strikeLimit || len(r.waiting()) == 0
}

// bounded reports whether the run ends for another reason than that every fault has
// struck.
func (s *faultSettings) bounded() bool { return s.duration > 0 || s.rounds > 0 || s.strikes > 0 }

// struck is how often faults have.
func (r *faultRun) struck() (n uint64) {
	for _, e := range r.book.List() {
		n += e.Strikes
	}
	return n
}

// waiting are the faults that have not struck.
func (r *faultRun) waiting() []faults.Fault {
	var list []faults.Fault
	for _, e := range r.book.List() {
		if !e.Fired {
			list = append(list, e.Fault)
		}
	}
	return list
}

// probe asks for the ranks' health while the load runs: a rank answers while its
// engine works.
func (r *faultRun) probe(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(probeEvery):
			}
			limited, end := context.WithTimeout(ctx, probeEvery)
			health, _ := r.group.group.Probe(limited) // ranks that are down do not answer
			end()
			var pids []int
			for _, s := range r.group.group.Status().Ranks {
				pids = append(pids, s.PID)
			}
			r.traffic.measure(health, pids)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

const probeEvery = 500 * time.Millisecond

// unmet are the expectations that did not come true.
func (r *faultRun) unmet() []string {
	var list []string
	for _, e := range r.script.Expectations {
		switch {
		case e.Continue && r.traffic.failed > 0:
			list = append(list, fmt.Sprintf("line %d: expect continue, but %d requests failed: %s", e.Line, r.traffic.failed, r.traffic.firstError))
		case !e.Continue && !slices.ContainsFunc(r.traffic.errors, func(err error) bool { return isExpected(err, e.Error) }):
			list = append(list, fmt.Sprintf("line %d: expect error %s, but no request ended with it", e.Line, e.Error))
		}
	}
	if !r.settings.bounded() {
		for _, f := range r.waiting() {
			list = append(list, fmt.Sprintf("line %d: %s did not strike within %v", f.Line, f, strikeLimit))
		}
	}
	return list
}

func isExpected(err error, name string) bool {
	if name == "Sequence" {
		var sequence *coordinator.SequenceError
		return errors.As(err, &sequence)
	}
	return errors.Is(err, expectable[name])
}
