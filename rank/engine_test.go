package rank

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/octet-run/octet/actors/round"
)

// recorded is one prompt of the trained pair with the reference's output.
type recorded struct {
	PromptIDs []int32 `json:"prompt_ids"`
	Greedy    []int32 `json:"greedy_96"`
	Overshoot []int32 `json:"greedy_overshoot_8"`
	Accept    map[string]struct {
		AcceptLengths []int `json:"accept_lengths"`
	} `json:"accept"`
}

func recordedCases(t testing.TB) []recorded {
	t.Helper()
	var file struct {
		Cases []recorded `json:"cases"`
	}
	if err := json.Unmarshal(readFixture(t, "eagle3-llama-pair", "expected.json"), &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) == 0 {
		t.Fatal("no recorded case")
	}
	return file.Cases
}

func chain(k int) round.Draft {
	return round.Draft{By: round.Eagle3, TopK: 1, Steps: uint8(k), Nodes: uint8(k + 1)}
}

// settings are the recorded ways to draft. A tree's closest decisions are nearer
// than float32 can promise, so its lengths are compared on average.
var settings = []struct {
	name  string
	draft round.Draft
}{
	{"", round.Draft{}},
	{"chain_k3", chain(3)},
	{"chain_k5", chain(5)},
	{"chain_k7", chain(7)},
	{"tree_topk4_steps5_tokens16", round.Draft{By: round.Eagle3, TopK: 4, Steps: 5, Nodes: 16}},
}

// matrix is how many of the recorded cases run at which rank counts.
func matrix() map[int]int {
	if os.Getenv("OCTET_TEST_FULL") != "" {
		return map[int]int{1: 12, 2: 12, 3: 12, 4: 12, 5: 12, 6: 12, 7: 12, 8: 12}
	}
	return map[int]int{1: 12, 3: 2, 8: 1}
}

func TestTheRecordedPairIsReproduced(t *testing.T) {
	for ranks, count := range matrix() {
		cases := recordedCases(t)[:count]
		t.Run(fmt.Sprintf("ranks=%d", ranks), func(t *testing.T) {
			g := newGroup(t, pairConfig(t), ranks)
			for _, s := range settings {
				var got, want float64
				for i, c := range cases {
					q := &request{id: uint64(i), prompt: c.PromptIDs, sampling: round.Sampling{Logprobs: -1}, draft: s.draft}
					g.run(len(c.Greedy), q)
					reference := slices.Concat(c.Greedy, c.Overshoot)
					if n := min(len(q.tokens), len(reference)); !slices.Equal(q.tokens[:n], reference[:n]) {
						t.Errorf("case %d, %q: tokens differ from the record", i, s.name)
					}
					if s.name == "" {
						continue
					}
					lengths := c.Accept[s.name].AcceptLengths
					if s.draft.TopK == 1 && !slices.Equal(q.lengths, lengths) {
						t.Errorf("case %d, %s: accepted %v, recorded %v", i, s.name, q.lengths, lengths)
					}
					got, want = got+mean(q.lengths), want+mean(lengths)
				}
				if got < 0.97*want || got > 1.03*want {
					t.Errorf("%s: mean acceptance length %.3f, recorded %.3f", s.name, got/float64(len(cases)), want/float64(len(cases)))
				}
			}
		})
	}
}

func mean(x []int) float64 {
	sum := 0
	for _, v := range x {
		sum += v
	}
	return float64(sum) / float64(max(len(x), 1))
}

func TestSequencesTogetherAreEachAsAlone(t *testing.T) {
	cases := recordedCases(t)[:testSlots]
	g := newGroup(t, pairConfig(t), 3)
	var together []*request
	for i, c := range cases {
		together = append(together, &request{
			slot: uint16(i), id: uint64(i), prompt: c.PromptIDs[:40+3*i],
			sampling: round.Sampling{Logprobs: -1, Temperature: 0.9, TopP: 0.95, Seed: uint64(i)}, draft: settings[1+i%4].draft,
		})
	}
	g.run(40, together...)
	for _, q := range together {
		for _, draft := range []round.Draft{{}, q.draft} {
			alone := &request{slot: 3, id: q.id, prompt: q.prompt, sampling: q.sampling, draft: draft}
			g.run(40, alone)
			if !slices.Equal(alone.tokens[:40], q.tokens[:40]) {
				t.Errorf("request %d drafted by %v differs alone", q.id, draft)
			}
		}
	}
}

func TestADrafterThatPausedDraftsAsBefore(t *testing.T) {
	c := recordedCases(t)[0]
	g := newGroup(t, pairConfig(t), 1)
	steady := &request{id: 1, prompt: c.PromptIDs, sampling: round.Sampling{Logprobs: -1}, draft: chain(5)}
	g.run(96, steady)
	// One that drafts, then not for longer than the drafter's rows can wait, then again.
	paused := &request{id: 2, prompt: c.PromptIDs, sampling: round.Sampling{Logprobs: -1}, draft: chain(5)}
	for len(paused.tokens) < 300 {
		paused.draft = chain(5)
		if n := len(paused.tokens); n > 40 && n < 40+2*waitingRows {
			paused.draft = round.Draft{}
		}
		result := g.do(paused.entry())
		if err := paused.take(result.Outcomes[0]); err != nil {
			t.Fatal(err)
		}
	}
	fresh := &request{id: 3, slot: 1, prompt: slices.Concat(c.PromptIDs, paused.tokens[:296]), sampling: round.Sampling{Logprobs: -1}, draft: chain(5)}
	for len(fresh.lengths) == 0 {
		if err := fresh.take(g.do(fresh.entry()).Outcomes[0]); err != nil {
			t.Fatal(err)
		}
	}
	n := min(len(fresh.tokens), len(paused.tokens)-296)
	if !slices.Equal(fresh.tokens[:n], paused.tokens[296:296+n]) {
		t.Errorf("went on with %v, a fresh sequence with %v", paused.tokens[296:], fresh.tokens)
	}
	if mean(paused.lengths[len(paused.lengths)-8:]) < 1.5 {
		t.Errorf("the drafter did not recover: rounds yielded %v", paused.lengths[len(paused.lengths)-8:])
	}
}
