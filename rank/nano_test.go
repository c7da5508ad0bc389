package rank

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/model/nano"
)

// minAcceptance is what a greedy chain of five must reach with the embedded pair
// on Go code it was not trained on.
const minAcceptance = 3.1

// TestTheEmbeddedPairIsReproduced holds tokens and accept lists of the pair to its
// goldens, and the pair to what it is there for.
func TestTheEmbeddedPairIsReproduced(t *testing.T) {
	pair, err := nano.Unpack(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile("../model/nano/testdata/expected.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []recorded `json:"cases"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	counts := map[int]int{1: 4, 8: 1}
	if os.Getenv("OCTET_TEST_FULL") != "" {
		counts = map[int]int{1: len(file.Cases), 3: len(file.Cases), 8: len(file.Cases)}
	}
	for ranks, count := range counts {
		t.Run(fmt.Sprintf("ranks=%d", ranks), func(t *testing.T) {
			c := pairConfig(t)
			c.Model, c.Draft = pair.Target, pair.Draft
			g := newGroup(t, c, ranks)
			for _, s := range settings {
				reproduce(t, g, s.name, s.draft, file.Cases[:count])
			}
		})
	}
}

func reproduce(t *testing.T, g *group, name string, draft round.Draft, cases []recorded) {
	var got, want []int
	for i, c := range cases {
		q := &request{id: uint64(i), prompt: c.PromptIDs, sampling: round.Sampling{Logprobs: -1}, draft: draft}
		g.run(len(c.Greedy), q)
		reference := slices.Concat(c.Greedy, c.Overshoot)
		if n := min(len(q.tokens), len(reference)); !slices.Equal(q.tokens[:n], reference[:n]) {
			t.Errorf("case %d, %q: tokens differ from the record", i, name)
		}
		lengths := c.Accept[name].AcceptLengths
		if draft.TopK == 1 && !slices.Equal(q.lengths, lengths) {
			t.Errorf("case %d, %s: accepted %v, recorded %v", i, name, q.lengths, lengths)
		}
		got, want = append(got, q.lengths...), append(want, lengths...)
	}
	if name == "" {
		return
	}
	t.Logf("%s: mean acceptance length %.3f, recorded %.3f", name, mean(got), mean(want))
	if mean(got) < 0.97*mean(want) || mean(got) > 1.03*mean(want) {
		t.Errorf("%s: mean acceptance length %.3f, recorded %.3f", name, mean(got), mean(want))
	}
	if name == "chain_k5" && mean(got) < minAcceptance {
		t.Errorf("a chain of five is accepted to %.3f tokens a round, less than %.1f", mean(got), minAcceptance)
	}
}
