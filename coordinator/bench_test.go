package coordinator

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/octet-run/octet/actors/round"
)

// instantGroup answers every entry with one token at once.
type instantGroup struct{}

func (instantGroup) WaitServing(context.Context) (uint32, error) { return 1, nil }
func (instantGroup) Break(int, string)                           {}
func (instantGroup) Epoch() uint32                               { return 1 }
func (instantGroup) Err() error                                  { return nil }

func (instantGroup) Do(_ context.Context, r *round.Round) (*round.Result, error) {
	result := &round.Result{Outcomes: make([]round.Outcome, len(r.Entries))}
	for i := range r.Entries {
		e, o := &r.Entries[i], &result.Outcomes[i]
		if e.Kind == round.Decode {
			o.Path, o.Tokens = []uint8{0}, []int32{e.Tokens[0]}
		} else if e.Last {
			o.Tokens = []int32{5}
		}
	}
	return result, nil
}

// BenchmarkRound is what the coordinator itself adds to a round: ns/op is one round
// of that many sequences, text included.
func BenchmarkRound(b *testing.B) {
	tok := loadTokenizer(b)
	for _, mode := range []Mode{ModeOff, ModeAuto} {
		for _, sequences := range []int{1, 8} {
			b.Run(fmt.Sprintf("%v/%d", mode, sequences), func(b *testing.B) {
				c, err := New(Config{
					Vocab: tok.VocabSize(), Context: 1 << 30, Blocks: 1 << 28, Tokenizer: tok, Eagle3: true, Drafting: Drafting{Mode: mode},
				}, instantGroup{})
				if err != nil {
					b.Fatal(err)
				}
				defer c.Close()
				var group sync.WaitGroup
				b.ReportAllocs()
				for range sequences {
					group.Go(func() {
						stream, err := c.Generate(b.Context(), Request{Prompt: []int32{1, 2, 3}, MaxTokens: b.N + 1, Sampling: greedy()})
						if err == nil {
							_, err = stream.Collect(b.Context())
						}
						if err != nil {
							b.Error(err)
						}
					})
				}
				group.Wait()
			})
		}
	}
}
