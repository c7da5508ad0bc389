package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/coordinator/coordinatortest"
	"github.com/octet-run/octet/speculation"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testVocab = 64

// limit is how long anything may take on a machine that is busy with other things.
// What depends on time more closely runs in a synctest bubble.
const limit = 2 * time.Minute

// start runs a coordinator over a toy group. Both end with the test.
func start(t *testing.T, change func(*Config, *coordinatortest.Group)) (*Coordinator, *coordinatortest.Group) {
	t.Helper()
	group := &coordinatortest.Group{Model: coordinatortest.Random(testVocab, 3), Vocab: testVocab, Blocks: 400, BlockTokens: 16}
	config := Config{
		Model: "toy", Vocab: testVocab, Context: 2048, Blocks: 400, Eagle3: true,
		Drafting: Drafting{Mode: ModeEagle3, Shape: speculation.Shape{TopK: 3, Steps: 4, Nodes: 12}},
	}
	if change != nil {
		change(&config, group)
	}
	c, err := New(config, group)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, group
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

func prompt(n int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(i*i+3*i) % testVocab
	}
	return tokens
}

func greedy() round.Sampling { return round.Sampling{Logprobs: -1} }

func collect(t *testing.T, c *Coordinator, r Request) Event {
	t.Helper()
	ctx := testContext(t)
	stream, err := c.Generate(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	all, err := stream.Collect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func tokenIDs(e Event) []int32 {
	list := make([]int32, len(e.Tokens))
	for i, token := range e.Tokens {
		list[i] = token.ID
	}
	return list
}

// atRest waits until nothing runs and checks that nothing is left.
func atRest(t *testing.T, c *Coordinator, g *coordinatortest.Group) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		s := c.Stats()
		if s.Running+s.Waiting == 0 && s.FreeBlocks == c.config.Blocks && g.FreeBlocks() == g.Blocks {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("at rest %d run, %d wait, %d of %d blocks are free, the group has %d", s.Running, s.Waiting, s.FreeBlocks, c.config.Blocks, g.FreeBlocks())
		}
	}
}

func TestOutputIsTheSameInEveryModeAndSampling(t *testing.T) {
	c, g := start(t, func(config *Config, _ *coordinatortest.Group) { config.ChunkRows = 32 })
	samplings := map[string]round.Sampling{
		"greedy":  greedy(),
		"sampled": {Temperature: 0.9, TopK: 20, TopP: 0.95, MinP: 0.01, Seed: 77, Logprobs: 3, PresencePenalty: 0.4, RepetitionPenalty: 1.1},
	}
	for name, sampling := range samplings {
		var want Event
		for i, drafting := range []Drafting{
			{Mode: ModeOff},
			{Mode: ModeEagle3},
			{Mode: ModeNGram},
			{Mode: ModeAuto},
			{Mode: ModeEagle3, Shape: speculation.Chain(5)},
			{Mode: ModeEagle3, Shape: speculation.Shape{TopK: 4, Steps: 5, Nodes: 16}},
		} {
			got := collect(t, c, Request{Prompt: prompt(75), MaxTokens: 60, Sampling: sampling, Drafting: drafting})
			if i == 0 {
				want = got
				continue
			}
			if !slices.Equal(tokenIDs(got), tokenIDs(want)) || fmt.Sprint(logprobsOf(got)) != fmt.Sprint(logprobsOf(want)) {
				t.Errorf("%s, %v %v: tokens or log-probabilities differ from those without speculation", name, drafting.Mode, drafting.Shape)
			}
			f := got.Finish
			if f.Reason != FinishLength || f.GeneratedTokens != 60 || len(got.Tokens) != 60 || f.PromptTokens != 75 {
				t.Errorf("%s, %v: finish %+v with %d tokens", name, drafting.Mode, f, len(got.Tokens))
			}
			if sum(f.Accepted) != 59 {
				t.Errorf("%s, %v: rounds delivered %v, which is not 59 in all", name, drafting.Mode, f.Accepted)
			}
			if drafting.Mode == ModeEagle3 && f.Rounds() > 55 {
				t.Errorf("%s: %d rounds for 59 tokens with a good drafter", name, f.Rounds())
			}
		}
	}
	atRest(t, c, g)
}

func sum(list []int) (total int) {
	for _, n := range list {
		total += n
	}
	return total
}

func logprobsOf(e Event) []round.TokenLogprobs {
	var list []round.TokenLogprobs
	for _, token := range e.Tokens {
		if token.Logprobs != nil {
			list = append(list, *token.Logprobs)
		}
	}
	return list
}

func TestEightAtOnceAreIdenticalToAlone(t *testing.T) {
	c, g := start(t, func(config *Config, _ *coordinatortest.Group) { config.ChunkRows = 40 })
	request := func(i int) Request {
		return Request{
			Prompt: prompt(5 + 23*i), MaxTokens: 20 + 7*i,
			Sampling: round.Sampling{Temperature: float32(i%3) * 0.5, Seed: uint64(i), Logprobs: -1},
			Drafting: Drafting{Mode: Mode(1 + i%4)},
		}
	}
	const requests = 12 // more than there are slots
	var alone [requests]Event
	for i := range alone {
		alone[i] = collect(t, c, request(i))
	}
	var group sync.WaitGroup
	var together [requests]Event
	ctx := testContext(t)
	for i := range together {
		group.Go(func() {
			stream, err := c.Generate(ctx, request(i))
			if err == nil {
				together[i], err = stream.Collect(ctx)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	for i := range together {
		if !slices.Equal(tokenIDs(together[i]), tokenIDs(alone[i])) {
			t.Errorf("request %d: %v alone, %v beside others", i, tokenIDs(alone[i]), tokenIDs(together[i]))
		}
	}
	atRest(t, c, g)
}

func TestCancelTakesEffectWithinOneRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rounds := make(chan struct{})
		c, g := start(t, func(_ *Config, g *coordinatortest.Group) {
			g.Before = func(ctx context.Context, _ *round.Round) error {
				select {
				case rounds <- struct{}{}:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		})
		ctx, cancel := context.WithCancel(testContext(t))
		stream, err := c.Generate(ctx, Request{Prompt: prompt(10), MaxTokens: 1000, Sampling: greedy()})
		if err != nil {
			t.Fatal(err)
		}
		<-rounds
		<-rounds
		cancel() // the second round is under way or over
		synctest.Wait()
		after := len(g.Rounds())
		// One more round at most may decode; then the slot is released.
		for released := false; !released; {
			<-rounds
			synctest.Wait()
			all := g.Rounds()
			last := all[len(all)-1]
			released = last.Entries[0].Kind == round.Release
			if !released && len(all) > after+1 {
				t.Fatalf("round %d after the cancel still decodes", len(all)-after)
			}
		}
		all, err := stream.Collect(testContext(t))
		if err != nil || all.Finish.Reason != FinishCancelled || all.Finish.GeneratedTokens != len(all.Tokens) {
			t.Errorf("stream ended with %v, %+v after %d tokens", err, all.Finish, len(all.Tokens))
		}
		atRest(t, c, g)
	})
}

func TestDeadlineEndsARequestAndAFreshOneIsUntouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := start(t, func(_ *Config, g *coordinatortest.Group) {
			g.Cost = func(*round.Round) (draft, verify time.Duration) { return 0, time.Millisecond }
		})
		want := collect(t, c, Request{Prompt: prompt(40), MaxTokens: 30, Sampling: greedy()})
		for range 4 {
			ctx, cancel := context.WithTimeout(testContext(t), 15*time.Millisecond)
			stream, err := c.Generate(ctx, Request{Prompt: prompt(40), MaxTokens: 1500, Sampling: greedy()})
			if err != nil {
				t.Fatal(err)
			}
			all, err := stream.Collect(testContext(t))
			cancel()
			if err != nil || all.Finish.Reason != FinishDeadline {
				t.Fatalf("ended with %v, %+v", err, all.Finish)
			}
			if n := min(30, len(all.Tokens)); !slices.Equal(tokenIDs(all)[:n], tokenIDs(want)[:n]) {
				t.Error("a cancelled request had other tokens")
			}
			if got := collect(t, c, Request{Prompt: prompt(40), MaxTokens: 30, Sampling: greedy()}); !slices.Equal(tokenIDs(got), tokenIDs(want)) {
				t.Error("the request after a cancelled one had other tokens")
			}
		}
		atRest(t, c, g)
	})
}

func TestStopTokenCutsTheRun(t *testing.T) {
	// The run of accepted tokens crosses the limit and hides an earlier stop token.
	script := []int32{10, 11, 12, 13, 14, 15, 16, 17}
	for _, c := range []struct {
		name   string
		stop   []int32
		max    int
		want   []int32
		reason FinishReason
	}{
		{"stop inside a run", []int32{13}, 100, script[:4], FinishStop},
		{"limit inside a run", nil, 3, script[:3], FinishLength},
		{"stop before the limit in one run", []int32{12}, 4, script[:3], FinishStop},
		{"limit before the stop in one run", []int32{14}, 4, script[:4], FinishLength},
		{"stop in the last place", []int32{13}, 4, script[:4], FinishStop},
		{"first token stops", []int32{10}, 4, script[:1], FinishStop},
		{"one token", nil, 1, script[:1], FinishLength},
	} {
		for _, mode := range []Mode{ModeOff, ModeEagle3} {
			t.Run(c.name+" "+mode.String(), func(t *testing.T) {
				coordinator, g := start(t, func(_ *Config, g *coordinatortest.Group) {
					g.Model = coordinatortest.Script(testVocab, 5, script)
				})
				sampling := round.Sampling{Logprobs: 1}
				got := collect(t, coordinator, Request{Prompt: prompt(5), MaxTokens: c.max, StopIDs: c.stop, Sampling: sampling, Drafting: Drafting{Mode: mode}})
				if !slices.Equal(tokenIDs(got), c.want) || got.Finish.Reason != c.reason {
					t.Errorf("tokens %v, finish %v; want %v, %v", tokenIDs(got), got.Finish.Reason, c.want, c.reason)
				}
				if got.Finish.GeneratedTokens != len(c.want) || len(logprobsOf(got)) != len(c.want) || sum(got.Finish.Accepted) != len(c.want)-1 {
					t.Errorf("usage %d, %d log-probabilities, rounds %v for %d tokens", got.Finish.GeneratedTokens, len(logprobsOf(got)), got.Finish.Accepted, len(c.want))
				}
				atRest(t, coordinator, g)
			})
		}
	}
}

func TestScoreReturnsTheArgmaxOfEveryRow(t *testing.T) {
	c, g := start(t, func(config *Config, _ *coordinatortest.Group) { config.ChunkRows = 16 })
	tokens := prompt(50)
	argmax, logits, err := c.Score(testContext(t), tokens)
	if err != nil {
		t.Fatal(err)
	}
	checkArgmax(t, g, tokens, argmax)
	if !slices.Equal(logits, g.Model(tokens)) {
		t.Error("last logits differ")
	}
	atRest(t, c, g)
}

func checkArgmax(t *testing.T, g *coordinatortest.Group, tokens, argmax []int32) {
	t.Helper()
	if len(argmax) != len(tokens) {
		t.Fatalf("%d rows of %d", len(argmax), len(tokens))
	}
	for i := range tokens {
		row := g.Model(tokens[:i+1])
		if argmax[i] != int32(slices.Index(row, slices.Max(row))) {
			t.Errorf("argmax of row %d is %d", i, argmax[i])
		}
	}
}

func TestAScoreThatIsRunAgainHasEachRowOnce(t *testing.T) {
	n := 0
	c, g := start(t, func(config *Config, g *coordinatortest.Group) {
		config.ChunkRows = 16
		g.Before = func(context.Context, *round.Round) error {
			if n++; n == 3 {
				return errors.New("rank 1 is gone")
			}
			return nil
		}
	})
	tokens := prompt(50)
	argmax, _, err := c.Score(testContext(t), tokens)
	if err != nil {
		t.Fatal(err)
	}
	checkArgmax(t, g, tokens, argmax)
	atRest(t, c, g)
}

func TestRequestsThatCannotBeServedAreRefusedByName(t *testing.T) {
	c, _ := start(t, func(config *Config, _ *coordinatortest.Group) { config.Eagle3, config.Drafting.Mode = false, ModeAuto })
	for param, r := range map[string]Request{
		"prompt":             {},
		"max_tokens":         {Prompt: prompt(10), MaxTokens: 4000},
		"stop":               {Prompt: prompt(10), Stop: []string{"x"}},
		"speculation":        {Prompt: prompt(10), Drafting: Drafting{Mode: ModeEagle3}},
		"repetition_penalty": {Prompt: prompt(10), Sampling: round.Sampling{RepetitionPenalty: -1}},
		"resume_offset":      {Prompt: prompt(10), Resume: 3},
		"logprobs":           {Prompt: prompt(10), Sampling: round.Sampling{Logprobs: maxLogprobs + 1}},
		"logit_bias":         {Prompt: prompt(10), Sampling: round.Sampling{LogitBias: manyBiases()}},
	} {
		_, err := c.Generate(testContext(t), r)
		var requestError *RequestError
		var paramError *speculation.ParamError
		switch {
		case errors.As(err, &requestError) && requestError.Param == param:
		case errors.As(err, &paramError) && paramError.Param == param:
		default:
			t.Errorf("%s: %v", param, err)
		}
	}
}

// manyBiases is one more than a request may bring.
func manyBiases() map[int32]float32 {
	biases := map[int32]float32{}
	for token := range int32(maxBiases + 1) {
		biases[token] = 1
	}
	return biases
}

func TestAFullQueueRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		c, _ := start(t, func(config *Config, g *coordinatortest.Group) {
			config.Batch, config.Queue = 1, 2
			g.Before = func(ctx context.Context, _ *round.Round) error {
				select {
				case <-hold:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		})
		ctx := testContext(t)
		errs := make(chan error)
		const requests = 6
		for range requests {
			go func() {
				stream, err := c.Generate(ctx, Request{Prompt: prompt(3), MaxTokens: 2, Sampling: greedy()})
				if err == nil {
					_, err = stream.Collect(ctx)
				}
				errs <- err
			}()
		}
		synctest.Wait()
		close(hold)
		refused := 0
		for range requests {
			if err := <-errs; errors.Is(err, ErrQueueFull) {
				refused++
			} else if err != nil {
				t.Error(err)
			}
		}
		if refused == 0 || refused > 4 {
			t.Errorf("%d of %d were refused", refused, requests)
		}
	})
}

func TestDrainFinishesWhatRunsAndTakesNothingNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := start(t, func(_ *Config, g *coordinatortest.Group) {
			g.Cost = func(*round.Round) (draft, verify time.Duration) { return 0, time.Millisecond }
		})
		ctx := testContext(t)
		stream, err := c.Generate(ctx, Request{Prompt: prompt(9), MaxTokens: 60, Sampling: greedy()})
		if err != nil {
			t.Fatal(err)
		}
		long, err := c.Generate(ctx, Request{Prompt: prompt(9), MaxTokens: 1900, Sampling: greedy()})
		if err != nil {
			t.Fatal(err)
		}
		grace, cancel := context.WithCancel(ctx)
		defer cancel()
		type drained struct{ finished, cut int }
		result := make(chan drained)
		go func() {
			finished, cut := c.Drain(grace)
			result <- drained{finished, cut}
		}()
		if all, err := stream.Collect(ctx); err != nil || all.Finish.Reason != FinishLength {
			t.Errorf("the short request ended with %v, %+v", err, all.Finish)
		}
		cancel()
		if d := <-result; d != (drained{1, 1}) {
			t.Errorf("finished and cut: %+v", d)
		}
		if all, err := long.Collect(ctx); err != nil || all.Finish.Reason != FinishCancelled {
			t.Errorf("the long request ended with %v, %+v", err, all.Finish)
		}
		if _, err := c.Generate(ctx, Request{Prompt: prompt(3), Sampling: greedy()}); !errors.Is(err, ErrDraining) {
			t.Errorf("a new request: %v", err)
		}
		atRest(t, c, g)
	})
}

func TestADrafterThatIsNeverAcceptedIsReported(t *testing.T) {
	c, _ := start(t, func(_ *Config, g *coordinatortest.Group) { g.Drafter = coordinatortest.Random(testVocab, 99) })
	events, stop := c.Watch()
	defer stop()
	collect(t, c, Request{Prompt: prompt(20), MaxTokens: 300, Sampling: greedy(), Drafting: Drafting{Mode: ModeEagle3, Shape: speculation.Chain(2)}})
	for {
		select {
		case e := <-events:
			if e.Kind != EventLowAcceptance {
				continue
			}
		case <-time.After(limit):
			t.Fatal("no event")
		}
		break
	}
	if s := c.Stats(); !strings.Contains(s.Suspicion, "captured layers") {
		t.Errorf("suspicion %q", s.Suspicion)
	}
}
