package collectives

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/octet-run/octet/collectives/transport"
)

// Verdict is what the probe found out about every directed pair of ranks, on the
// mapping that the collectives use. It is the same on all ranks.
type Verdict struct {
	Box   string `json:"box,omitempty"` // boot, driver and devices it holds for
	Ranks int    `json:"ranks"`
	Pairs []Pair `json:"pairs"`
}

// Pair is the path on which rank From writes memory of rank To, and To reads
// memory of From.
type Pair struct {
	From    int           `json:"from"`
	To      int           `json:"to"`
	Refused string        `json:"refused,omitempty"` // why the path must not be used
	Latency time.Duration `json:"latency_ns"`        // a flag, one way
	Push    float64       `json:"push_gbps"`         // 10^9 bytes/s written by From, alone
	Pull    float64       `json:"pull_gbps"`         // read by To, alone
	// The same while every rank writes, or reads, at once.
	LoadedPush float64 `json:"loaded_push_gbps"`
	LoadedPull float64 `json:"loaded_pull_gbps"`
}

// ReadVerdict reads a verdict's JSON.
func ReadVerdict(r io.Reader) (Verdict, error) {
	var v Verdict
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		return Verdict{}, fmt.Errorf("read the verdict on paths: %w", err)
	}
	return v, v.validate()
}

// Write writes the verdict's JSON.
func (v Verdict) Write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// HoldsFor reports whether a verdict that was kept says anything about this box (its
// boot, driver and devices) and group.
func (v Verdict) HoldsFor(box string, ranks int) bool { return v.Box == box && v.Ranks == ranks }

// validate is nil for a verdict on every directed pair: one that says nothing of a
// pair must not pass for one that found it good.
func (v Verdict) validate() error {
	if v.Ranks < 1 || v.Ranks > transport.MaxRanks {
		return fmt.Errorf("verdict on paths of %d ranks: want 1 to %d", v.Ranks, transport.MaxRanks)
	}
	seen := map[[2]int]bool{}
	for _, p := range v.Pairs {
		if p.From < 0 || p.From >= v.Ranks || p.To < 0 || p.To >= v.Ranks || p.From == p.To {
			return fmt.Errorf("verdict on paths of %d ranks: there is no pair %d -> %d", v.Ranks, p.From, p.To)
		}
		seen[[2]int{p.From, p.To}] = true
	}
	if want := v.Ranks * (v.Ranks - 1); len(seen) != want || len(v.Pairs) != want {
		return fmt.Errorf("verdict on paths of %d ranks: %d pairs are named, %d entries, want %d of each", v.Ranks, len(seen), len(v.Pairs), want)
	}
	return nil
}

// Explain is the verdict as a table.
func (v Verdict) Explain() string {
	return table("from\tto\tverdict\tlatency\tpush\tpull\tpush loaded\tpull loaded (GB/s)", func(w io.Writer) {
		for _, p := range v.Pairs {
			verdict := "good"
			if p.Refused != "" {
				verdict = "refused: " + p.Refused
			}
			fmt.Fprintf(w, "%d\t%d\t%s\t%v\t%.1f\t%.1f\t%.1f\t%.1f\n", p.From, p.To, verdict, p.Latency, p.Push, p.Pull, p.LoadedPush, p.LoadedPull)
		}
	})
}

// Summary is the verdict in a sentence: how many paths are good, and their range.
func (v Verdict) Summary() string {
	refused := 0
	var latency []time.Duration
	var push []float64
	for _, p := range v.Pairs {
		if p.Refused != "" {
			refused++
			continue
		}
		latency, push = append(latency, p.Latency), append(push, p.LoadedPush)
	}
	if len(latency) == 0 {
		return fmt.Sprintf("%d paths, none of them good", len(v.Pairs))
	}
	return fmt.Sprintf("%d paths good, %d refused; flags %v to %v one way, stores %.1f to %.1f GB/s while all write",
		len(latency), refused, slices.Min(latency), slices.Max(latency), slices.Min(push), slices.Max(push))
}

// table is lines of cells, aligned below their heads.
func table(heads string, lines func(w io.Writer)) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, heads)
	lines(w)
	if err := w.Flush(); err != nil {
		panic(fmt.Sprintf("collectives: a string builder does not fail: %v", err))
	}
	return out.String()
}

// allows is nil where every path that the algorithm uses was found good.
func (v *Verdict) allows(a Algorithm, s Shape) error {
	if v == nil {
		return nil
	}
	for _, pair := range v.Pairs {
		if pair.Refused != "" && uses(a, s, pair.From, pair.To) {
			return fmt.Errorf("uses the path from rank %d to rank %d, which was refused: %s", pair.From, pair.To, pair.Refused)
		}
	}
	return nil
}

// uses reports whether data or flags go from one rank to another.
func uses(a Algorithm, s Shape, from, to int) bool {
	p := Payload{Rows: 1, Width: shardAlign * s.Ranks}
	for _, step := range a.Program(s, from, p) {
		if (step.Do == Put || step.Do == Signal) && (step.Peer == to || step.Peer == Everyone) {
			return true
		}
	}
	return false
}
