package simulation

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/octet-run/octet/faults"
)

// Script draws the faults of a seed: one to six, over all kinds that a single
// process can simulate. Flips of data in the slabs are not among them: nothing in
// the system notices those.
func Script(seed uint64) ([]faults.Fault, error) {
	plan, err := drawPlan(stream(seed, 1))
	if err != nil {
		return nil, err
	}
	r := stream(seed, 3)
	var lines []string
	for range 1 + r.IntN(6) {
		lines = append(lines, kinds[r.IntN(len(kinds))](r, r.IntN(plan.ranks)))
	}
	script, err := faults.Parse(strings.Join(lines, "\n"), plan.ranks)
	if err != nil {
		return nil, err
	}
	for i := range script.Faults {
		script.Faults[i].Line = 0
	}
	return script.Faults, nil
}

// Text is a script in its language.
func Text(script []faults.Fault) string {
	lines := make([]string, len(script))
	for i, f := range script {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

var (
	rankPoints       = []faults.Point{faults.RankStep, faults.RankDraft, faults.RankVerify, faults.RankAccept, faults.RankPost}
	collectivePoints = []faults.Point{faults.CollectiveArrive, faults.CollectiveReduce, faults.CollectiveLeave}
	deaths           = []faults.Verb{faults.Abort, faults.Exit, faults.Panic}
)

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// when is a round, or a time, that most runs reach.
func when(r *rand.Rand) string {
	if r.IntN(3) == 0 {
		return fmt.Sprintf("after %v", between(r, 2*time.Millisecond, 40*time.Millisecond))
	}
	return fmt.Sprintf("at round %d", 1+r.IntN(30))
}

func between(r *rand.Rand, least, most time.Duration) time.Duration {
	d := least + time.Duration(r.Int64N(int64(most-least)))
	return d.Round(100 * time.Microsecond)
}

// inside is a place in the engine thread's work.
func inside(r *rand.Rand) (trigger string, point faults.Point) {
	if r.IntN(2) == 0 {
		return fmt.Sprintf("at round %d", 1+r.IntN(30)), pick(r, rankPoints...)
	}
	return fmt.Sprintf("at op %d", 1+r.IntN(90)), pick(r, collectivePoints...)
}

// kinds draw one line each, for a rank.
var kinds = []func(r *rand.Rand, rank int) string{
	func(r *rand.Rand, rank int) string { return fmt.Sprintf("%s kill rank=%d", when(r), rank) },
	func(r *rand.Rand, rank int) string {
		return fmt.Sprintf("%s stop rank=%d for=%v", when(r), rank, between(r, 10*time.Millisecond, 600*time.Millisecond))
	},
	func(r *rand.Rand, rank int) string {
		trigger, point := inside(r)
		return fmt.Sprintf("%s %s at %s rank=%d", trigger, pick(r, deaths...), point, rank)
	},
	func(r *rand.Rand, rank int) string {
		trigger, point := inside(r)
		return fmt.Sprintf("%s hang at %s rank=%d", trigger, point, rank)
	},
	func(r *rand.Rand, rank int) string { // slow, once or always
		trigger, point := inside(r)
		return fmt.Sprintf("%s delay at %s rank=%d for=%v every=%d", trigger, point, rank, between(r, time.Millisecond, 60*time.Millisecond), 1+r.IntN(40))
	},
	func(r *rand.Rand, rank int) string {
		trigger, point := inside(r)
		return fmt.Sprintf("%s fail at %s rank=%d", trigger, point, rank)
	},
	func(r *rand.Rand, rank int) string {
		return fmt.Sprintf("at op %d %s at collective.arrive rank=%d", 1+r.IntN(90), pick(r, "drop", "duplicate", "stale", "nan"), rank)
	},
	func(r *rand.Rand, rank int) string {
		return fmt.Sprintf("at round %d nan at rank.verify rank=%d", 1+r.IntN(30), rank)
	},
	func(r *rand.Rand, rank int) string {
		return fmt.Sprintf("at hit %d %s at link.send rank=%d", 1+r.IntN(4), pick(r, "drop", "duplicate", "reorder", "flip", "tear", "stale"), rank)
	},
	func(r *rand.Rand, rank int) string {
		verb := pick(r, "drop", "flip", "tear", "stale", "fail")
		if verb == "tear" || verb == "stale" {
			rank = 0 // the others write no result
		}
		return fmt.Sprintf("at round %d %s at rank.post rank=%d", 1+r.IntN(20), verb, rank)
	},
	func(r *rand.Rand, rank int) string { // while loading: the first time, or when it is loaded again
		return fmt.Sprintf("at hit %d %s at rank.load rank=%d", 1+r.IntN(3), pick(r, "fail", "exit", "panic", "hang"), rank)
	},
	func(r *rand.Rand, _ int) string { return when(r) + " kill rank=supervisor" },
	func(r *rand.Rand, _ int) string { return when(r) + " fail at coordinator.emit" },
	func(r *rand.Rand, _ int) string {
		return fmt.Sprintf("%s delay at coordinator.emit for=%v", when(r), between(r, time.Millisecond, 400*time.Millisecond))
	},
	func(r *rand.Rand, _ int) string { return when(r) + " fail at coordinator.commit" },
	func(r *rand.Rand, _ int) string {
		return fmt.Sprintf("at round %d delay at coordinator.round for=%v", 1+r.IntN(30), between(r, time.Millisecond, 300*time.Millisecond))
	},
	func(r *rand.Rand, _ int) string {
		return fmt.Sprintf("at round %d fail at %s", 1+r.IntN(30), pick(r, faults.BoardPublish, faults.BoardCollect))
	},
	func(r *rand.Rand, rank int) string { // a crash loop
		return fmt.Sprintf("at round %d kill rank=%d every=%d", 1+r.IntN(20), rank, 1+r.IntN(6))
	},
}
