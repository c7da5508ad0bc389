package collectives

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/octet-run/octet/collectives/transport"
	"github.com/octet-run/octet/internal/shm"
)

// LossBench kills and stops ranks in every phase of every algorithm, and times
// until all others have the error that names them.
type LossBench struct {
	Ranks    int
	Victims  int           // ranks that are struck in turn; 0 means all
	Deadline time.Duration // of a wait; 0 means 250 ms
	// Command makes the process of one rank, which calls RankLoss.Run.
	Command func(RankLoss) RankCommand
	// Progress, if set, is told before each strike.
	Progress func(done, all int)
}

// LossTiming is how long the survivors of one kind of loss took to know, over all
// victims: from the blow for a dead rank, from the deadline for a stopped one.
type LossTiming struct {
	Algorithm string        `json:"algorithm"`
	Moment    Moment        `json:"moment"`
	Stopped   bool          `json:"stopped"`
	Strikes   int           `json:"strikes"`
	Survivors int           `json:"survivors"`
	P50       time.Duration `json:"p50_ns"`
	P99       time.Duration `json:"p99_ns"`
	Max       time.Duration `json:"max_ns"`
	// NoticedP50 and NoticedMax, of dead ranks, are the part until their parent had
	// noticed: the system ends every thread of a process before it says so.
	NoticedP50 time.Duration `json:"noticed_p50_ns,omitempty"`
	NoticedMax time.Duration `json:"noticed_max_ns,omitempty"`
}

// lossTimes is what strikes took: each survivor, and the parent.
type lossTimes struct {
	strikes  int
	survivor []time.Duration
	noticed  []time.Duration
}

func (t *lossTimes) add(other lossTimes) {
	t.strikes += other.strikes
	t.survivor = append(t.survivor, other.survivor...)
	t.noticed = append(t.noticed, other.noticed...)
}

// Run strikes. It fails if a survivor has no typed error or one that names another
// rank. The last two timings are those of all dead and of all stopped ranks.
func (b LossBench) Run(ctx context.Context) ([]LossTiming, error) {
	if b.Victims == 0 {
		b.Victims = b.Ranks
	}
	if b.Deadline == 0 {
		b.Deadline = 250 * time.Millisecond
	}
	losses := b.losses()
	var timings []LossTiming
	var dead, stopped lossTimes
	for i, loss := range losses {
		var took lossTimes
		for victim := range b.Victims {
			if b.Progress != nil {
				b.Progress(i*b.Victims+victim, len(losses)*b.Victims)
			}
			loss.Victim = victim
			one, err := b.strike(ctx, loss)
			if err != nil {
				return nil, fmt.Errorf("%s, rank %d lost %s (stopped: %v): %w", loss.Algorithm, victim, loss.Moment, loss.Stop, err)
			}
			took.add(one)
		}
		if loss.Stop {
			stopped.add(took)
		} else {
			dead.add(took)
		}
		timings = append(timings, took.timing(loss))
	}
	all := RankLoss{Algorithm: "all", Moment: "any"}
	timings = append(timings, dead.timing(all))
	all.Stop = true
	return append(timings, stopped.timing(all)), nil
}

// losses is one loss for each algorithm that the ranks can run, moment and blow.
func (b LossBench) losses() []RankLoss {
	var out []RankLoss
	for _, a := range Algorithms() {
		shape := Shape{Ranks: b.Ranks, Coherent: true}
		if b.Ranks%2 == 0 && b.Ranks > 2 {
			shape.Islands = []int{b.Ranks / 2, b.Ranks / 2}
		}
		if a.Admits(shape, Payload{Rows: 1, Width: lossWidth}) != nil {
			continue
		}
		for _, m := range MomentsOf(a, shape) {
			for _, stop := range []bool{false, true} {
				out = append(out, RankLoss{Algorithm: a.Name, Shape: shape, Moment: m, Stop: stop, Deadline: b.Deadline})
			}
		}
	}
	return out
}

// strike runs one group until its victim is lost and returns how long each survivor
// took to know it, and of a dead one the parent.
func (b LossBench) strike(ctx context.Context, loss RankLoss) (lossTimes, error) {
	var victim *os.Process
	var noticed int64
	left := b.Ranks - 1
	outputs, err := launch{
		config:  transport.Config{Ranks: b.Ranks, MaxRows: 1, MaxWidth: lossWidth},
		command: b.Command(loss),
		started: func(rank int, p *os.Process) {
			if rank == loss.Victim {
				victim = p
			}
		},
		ended: func(g *transport.Group, rank int, err error) error {
			if rank == loss.Victim {
				g.Abort(rank, shm.Died)
				noticed, err = monotonic()
				return err
			}
			if left--; left == 0 && victim != nil {
				_ = victim.Kill() // a stopped one
			}
			return err
		},
	}.run(ctx)
	if err != nil {
		return lossTimes{}, err
	}
	reports := make([]Loss, b.Ranks)
	for r := range reports {
		if err := json.Unmarshal(outputs[r].Bytes(), &reports[r]); err != nil {
			return lossTimes{}, fmt.Errorf("rank %d printed %q: %w", r, outputs[r].String(), err)
		}
	}
	times := lossTimes{strikes: 1}
	if !loss.Stop {
		times.noticed = append(times.noticed, time.Duration(noticed-reports[loss.Victim].At))
	}
	times.survivor, err = loss.latencies(reports)
	return times, err
}

// latencies checks what the survivors say.
func (l RankLoss) latencies(reports []Loss) ([]time.Duration, error) {
	reason, from := shm.Died, reports[l.Victim].At
	if l.Stop {
		reason, from = shm.TimedOut, from+int64(l.Deadline)
	}
	var took []time.Duration
	for r, report := range reports {
		if r == l.Victim {
			continue
		}
		if report.Rank != l.Victim || report.Reason != reason.String() {
			return nil, fmt.Errorf("rank %d has the error %q, which does not name rank %d (%v)", r, report.Error, l.Victim, reason)
		}
		took = append(took, time.Duration(report.At-from))
	}
	return took, nil
}

func (t lossTimes) timing(l RankLoss) LossTiming {
	slices.Sort(t.survivor)
	slices.Sort(t.noticed)
	n := len(t.survivor)
	out := LossTiming{
		Algorithm: l.Algorithm, Moment: l.Moment, Stopped: l.Stop, Strikes: t.strikes, Survivors: n,
		P50: t.survivor[n/2], P99: t.survivor[n*99/100], Max: t.survivor[n-1],
	}
	if n := len(t.noticed); n > 0 {
		out.NoticedP50, out.NoticedMax = t.noticed[n/2], t.noticed[n-1]
	}
	return out
}
