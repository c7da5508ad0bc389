package coordinator

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/octet-run/octet/coordinator/coordinatortest"
	"github.com/octet-run/octet/model/tokenizer"
)

func loadTokenizer(t testing.TB) *tokenizer.Tokenizer {
	t.Helper()
	loaded, err := tokenizer.Load("../testdata/fixtures/eagle3-llama-pair/target")
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// scripted runs a request whose model says text after a fixed prompt.
func scripted(t *testing.T, tok *tokenizer.Tokenizer, text string, change func(*Request)) (Event, []Event) {
	t.Helper()
	const promptTokens = 3
	ids := append(tok.EncodeOrdinary(text), 1)
	c, g := start(t, func(config *Config, g *coordinatortest.Group) {
		config.Vocab, config.Tokenizer, config.EOS = tok.VocabSize(), tok, tok.EOS()
		g.Vocab = tok.VocabSize()
		g.Model = coordinatortest.Script(tok.VocabSize(), promptTokens, ids)
	})
	r := Request{Prompt: tok.EncodeOrdinary("func main()")[:promptTokens], MaxTokens: 200, Sampling: greedy()}
	r.Sampling.Logprobs = 0
	change(&r)
	ctx := testContext(t)
	stream, err := c.Generate(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	var all Event
	var events []Event
	for all.Finish == nil {
		event, err := stream.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, event)
		all.add(event)
	}
	atRest(t, c, g)
	return all, events
}

func TestStopStringsCutTextTokensAndUsageAtOneBoundary(t *testing.T) {
	tok := loadTokenizer(t)
	const text = "for i := range items {\n\tfmt.Println(i, \"naïve 世界 🎉\")\n}\n"
	for _, stop := range [][]string{
		{"\n"}, {"}"}, {"Println"}, {"rintl"}, {"nothing like it"}, {"界"}, {"for"}, {"🎉\")\n}\n", "}"}, {"fmt.Printf", "fmt.Pri", "i, "},
	} {
		want, stopped := text, ""
		end := len(text) + 1
		for _, s := range stop {
			if at := strings.Index(text, s); at >= 0 && at+len(s) < end {
				end, want, stopped = at+len(s), text[:at], s
			}
		}
		for _, mode := range []Mode{ModeOff, ModeEagle3, ModeNGram} {
			got, events := scripted(t, tok, text, func(r *Request) { r.Stop, r.Drafting.Mode = stop, mode })
			name := fmt.Sprintf("stop %q, %v", stop, mode)
			if got.Text != want {
				t.Errorf("%s: text %q, want %q", name, got.Text, want)
			}
			f := got.Finish
			if f.Reason != FinishStop || stopped != "" && f.Stop != stopped {
				t.Errorf("%s: finish %v at %q", name, f.Reason, f.Stop)
			}
			if f.GeneratedTokens != len(got.Tokens) || len(logprobsOf(got)) != len(got.Tokens) || sum(f.Accepted) != max(len(got.Tokens)-1, 0) {
				t.Errorf("%s: usage %d, %d log-probabilities, rounds %v for %d tokens", name, f.GeneratedTokens, len(logprobsOf(got)), f.Accepted, len(got.Tokens))
			}
			decoded := tok.Decode(tokenIDs(got), true)
			if !strings.HasPrefix(decoded, got.Text) {
				t.Errorf("%s: tokens say %q, the text is %q", name, decoded, got.Text)
			}
			for _, token := range got.Tokens {
				if stopped != "" && token.Start >= len(want) {
					t.Errorf("%s: token %d begins at %d, the text ends at %d", name, token.ID, token.Start, len(want))
				}
			}
			for _, event := range events {
				if stopped != "" && strings.Contains(event.Text, stopped) {
					t.Errorf("%s: %q left", name, event.Text)
				}
			}
		}
	}
}

func TestTheStopTokenIsDeliveredWithoutText(t *testing.T) {
	tok := loadTokenizer(t)
	got, _ := scripted(t, tok, "return nil", func(*Request) {})
	if got.Text != "return nil" || got.Finish.Reason != FinishStop || got.Finish.Stop != "<|end_of_text|>" {
		t.Errorf("text %q, finish %+v", got.Text, got.Finish)
	}
	if ids := tokenIDs(got); ids[len(ids)-1] != 1 || got.Finish.GeneratedTokens != len(ids) {
		t.Errorf("tokens %v, usage %d", ids, got.Finish.GeneratedTokens)
	}
	comma := tok.EncodeOrdinary(",")[0]
	got, _ = scripted(t, tok, "a, b", func(r *Request) { r.StopIDs = []int32{comma} })
	if got.Text != "a" || got.Finish.Stop != "," {
		t.Errorf("text %q, stopped by %q", got.Text, got.Finish.Stop)
	}
}

func TestIgnoreEOSGoesOn(t *testing.T) {
	tok := loadTokenizer(t)
	got, _ := scripted(t, tok, "a", func(r *Request) { r.IgnoreEOS, r.MaxTokens = true, 20 })
	if got.Finish.Reason != FinishLength || len(got.Tokens) != 20 || !slices.Contains(tokenIDs(got), 1) || got.Text != "a" {
		t.Errorf("finish %v after %v", got.Finish.Reason, tokenIDs(got))
	}
}

func TestTextHeldBackComesOutAtTheLimit(t *testing.T) {
	tok := loadTokenizer(t)
	const text = "x := a + b"
	n := len(tok.EncodeOrdinary(text))
	got, _ := scripted(t, tok, text+" + c", func(r *Request) { r.Stop, r.MaxTokens = []string{"+ b + d"}, n })
	if got.Text != text || got.Finish.Reason != FinishLength || len(got.Tokens) != n {
		t.Errorf("text %q, finish %v, %d tokens", got.Text, got.Finish.Reason, len(got.Tokens))
	}
}

func TestEventsNeverSplitACharacterOrShowAPossibleStop(t *testing.T) {
	tok := loadTokenizer(t)
	rng := rand.New(rand.NewPCG(4, 2))
	letters := []string{"a", "b", "ab", " ", "世", "🎉", "é", "\n"}
	for range 30 {
		var text strings.Builder
		for range 5 + rng.IntN(40) {
			text.WriteString(letters[rng.IntN(len(letters))])
		}
		stop := letters[rng.IntN(3)] + letters[rng.IntN(len(letters))] + letters[rng.IntN(3)]
		want, _, _ := strings.Cut(text.String(), stop)
		got, events := scripted(t, tok, text.String(), func(r *Request) { r.Stop = []string{stop} })
		if got.Text != want {
			t.Errorf("%q stopped at %q: %q, want %q", text.String(), stop, got.Text, want)
		}
		for _, event := range events {
			if strings.ContainsRune(event.Text, '\uFFFD') {
				t.Errorf("an event has half a character: %q", event.Text)
			}
		}
	}
}

func TestResumedOutputSkipsWhatTheClientHas(t *testing.T) {
	tok := loadTokenizer(t)
	ids := tok.EncodeOrdinary("for i, 世界 := range naïve {}")
	whole := newOutput(tok, nil, nil, 0)
	var seen Event
	for skip := range ids {
		resumed := newOutput(tok, nil, nil, skip)
		var rest Event
		for _, id := range ids {
			event, _ := resumed.push(id, nil, true)
			rest.add(event)
		}
		last, _ := resumed.flush()
		rest.add(last)
		if rest.Offset != skip || !slices.Equal(tokenIDs(rest), ids[skip:]) || seen.Text+rest.Text != tok.Decode(ids, true) {
			t.Errorf("after %d tokens and %q: offset %d, tokens %v, text %q", skip, seen.Text, rest.Offset, tokenIDs(rest), rest.Text)
		}
		event, _ := whole.push(ids[skip], nil, true)
		seen.add(event)
	}
}
