package coordinator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/coordinator/coordinatortest"
)

func TestABrokenGroupIsReplayedWithTheSameTokens(t *testing.T) {
	request := Request{
		Prompt: prompt(50), MaxTokens: 40,
		Sampling: round.Sampling{Temperature: 0.8, Seed: 5, Logprobs: 0, FrequencyPenalty: 0.3},
	}
	quiet, _ := start(t, nil)
	want := collect(t, quiet, request)
	errRank := errors.New("rank 3 exited with status 9 in round 4")
	for _, failing := range [][]int{{1}, {2}, {3}, {6}, {4, 9, 12}} {
		n := 0
		c, g := start(t, func(config *Config, g *coordinatortest.Group) {
			config.ChunkRows = 20
			g.Before = func(context.Context, *round.Round) error {
				if n++; slices.Contains(failing, n) {
					return errRank
				}
				return nil
			}
		})
		got := collect(t, c, request)
		if !slices.Equal(tokenIDs(got), tokenIDs(want)) || fmt.Sprint(logprobsOf(got)) != fmt.Sprint(logprobsOf(want)) {
			t.Errorf("failing in rounds %v: %v, want %v", failing, tokenIDs(got), tokenIDs(want))
		}
		if got.Finish.Replays != len(failing) {
			t.Errorf("failing in rounds %v: %d replays", failing, got.Finish.Replays)
		}
		atRest(t, c, g)
	}
}

func TestAGroupThatKeepsBreakingEndsTheRequestWithItsError(t *testing.T) {
	errRank := errors.New("rank 5 did not come to round 1")
	c, g := start(t, func(_ *Config, g *coordinatortest.Group) {
		g.Before = func(context.Context, *round.Round) error { return errRank }
	})
	got := collect(t, c, Request{Prompt: prompt(3), MaxTokens: 5, Sampling: greedy()})
	var groupError *GroupError
	if !errors.As(got.Finish.Err, &groupError) || !errors.Is(got.Finish.Err, errRank) || groupError.Replays != 3 || !strings.Contains(got.Finish.Err.Error(), "rank 5") {
		t.Errorf("ended with %v", got.Finish.Err)
	}
	atRest(t, c, g)
}

func TestAGroupThatIsGoneEndsEverything(t *testing.T) {
	errGone := errors.New("rank 2 failed 5 times in a minute")
	c, g := start(t, nil)
	g.Before = func(context.Context, *round.Round) error {
		g.Give(errGone)
		return errGone
	}
	got := collect(t, c, Request{Prompt: prompt(3), MaxTokens: 5, Sampling: greedy()})
	if !errors.Is(got.Finish.Err, errGone) {
		t.Errorf("ended with %v", got.Finish.Err)
	}
	if _, err := c.Generate(testContext(t), Request{Prompt: prompt(3), MaxTokens: 5, Sampling: greedy()}); !errors.Is(err, errGone) {
		t.Errorf("a new request: %v", err)
	}
	if s := c.Stats(); s.Ready || !strings.Contains(s.Reason, "rank 2") {
		t.Errorf("ready %v: %s", s.Ready, s.Reason)
	}
}

func TestAGroupThatBreaksWhileIdleIsNotReadyAndServesAgain(t *testing.T) {
	c, g := start(t, nil)
	request := Request{Prompt: prompt(9), MaxTokens: 12, Sampling: greedy()}
	want := collect(t, c, request)
	atRest(t, c, g)
	g.Break(3, "killed")
	if s := c.Stats(); s.Ready {
		t.Error("ready without a group")
	}
	got := collect(t, c, request)
	if !slices.Equal(tokenIDs(got), tokenIDs(want)) || got.Finish.Replays != 0 {
		t.Errorf("%v after %d replays, want %v", tokenIDs(got), got.Finish.Replays, tokenIDs(want))
	}
	if s := c.Stats(); !s.Ready || s.Epoch != 2 {
		t.Errorf("ready %v in epoch %d: %s", s.Ready, s.Epoch, s.Reason)
	}
	atRest(t, c, g)
}

func TestNaNEndsOneRequestAndTheGroupLives(t *testing.T) {
	nan := float32(0)
	nan /= nan
	c, g := start(t, func(_ *Config, g *coordinatortest.Group) {
		good := g.Model
		g.Model = func(tokens []int32) []float32 {
			row := good(tokens)
			if tokens[0] == 63 && len(tokens) > 12 {
				row[7] = nan
			}
			return row
		}
	})
	bad := append([]int32{63}, prompt(6)...)
	ctx := testContext(t)
	other, err := c.Generate(ctx, Request{Prompt: prompt(6), MaxTokens: 50, Sampling: greedy(), Drafting: Drafting{Mode: ModeNGram}})
	if err != nil {
		t.Fatal(err)
	}
	got := collect(t, c, Request{Prompt: bad, MaxTokens: 50, Sampling: greedy(), Drafting: Drafting{Mode: ModeOff}})
	var sequenceError *SequenceError
	if !errors.As(got.Finish.Err, &sequenceError) || len(got.Tokens) != 6 {
		t.Errorf("ended with %v after %d tokens", got.Finish.Err, len(got.Tokens))
	}
	if all, err := other.Collect(ctx); err != nil || all.Finish.Reason != FinishLength {
		t.Errorf("the request beside it ended with %v, %+v", err, all.Finish)
	}
	atRest(t, c, g)
}

func TestResumeGoesOnWithTheSameTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, g := start(t, func(_ *Config, g *coordinatortest.Group) {
			g.Cost = func(*round.Round) (draft, verify time.Duration) { return 0, time.Millisecond }
		})
		request := Request{ID: "lost", Prompt: prompt(20), MaxTokens: 60, Sampling: round.Sampling{Temperature: 1, Seed: 9, Logprobs: 0}}
		want := collect(t, c, request)

		ctx, cancel := context.WithCancel(testContext(t))
		stream, err := c.Generate(ctx, request)
		if err != nil {
			t.Fatal(err)
		}
		var seen Event
		for len(seen.Tokens) < 20 {
			event, err := stream.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			seen.add(event)
		}
		cancel()
		if _, err := stream.Collect(testContext(t)); err != nil {
			t.Fatal(err)
		}
		again := request
		again.Resume, again.Sampling.Seed = len(seen.Tokens), 12345 // the log knows the seed
		rest := collect(t, c, again)
		if rest.Offset != len(seen.Tokens) {
			t.Errorf("resumed at %d, asked for %d", rest.Offset, len(seen.Tokens))
		}
		if got := append(tokenIDs(seen), tokenIDs(rest)...); !slices.Equal(got, tokenIDs(want)) {
			t.Errorf("in two parts %v, in one %v", got, tokenIDs(want))
		}
		if rest.Finish.GeneratedTokens != 60 {
			t.Errorf("usage %d", rest.Finish.GeneratedTokens)
		}
		atRest(t, c, g)
	})
}

func TestARoundThatHangsIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		c, _ := start(t, func(config *Config, g *coordinatortest.Group) {
			config.StallAfter = 30 * time.Millisecond
			g.Before = func(ctx context.Context, _ *round.Round) error {
				select {
				case <-hold:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		})
		stream, err := c.Generate(testContext(t), Request{Prompt: prompt(3), MaxTokens: 3, Sampling: greedy()})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(60 * time.Millisecond)
		if s := c.Stats(); s.Ready || s.Round < 30*time.Millisecond {
			t.Errorf("hung for %v and ready: %v", s.Round, s.Ready)
		}
		close(hold)
		if _, err := stream.Collect(testContext(t)); err != nil {
			t.Fatal(err)
		}
		if s := c.Stats(); !s.Ready {
			t.Errorf("not ready after the round came back: %s", s.Reason)
		}
	})
}

// Requests come, are cancelled and run while the group breaks again and again; each
// has the tokens that it has alone, or a prefix of them.
func TestRandomTrafficKeepsEveryRequestsTokens(t *testing.T) {
	const kinds, requests = 6, 40
	request := func(kind int) Request {
		return Request{
			Prompt: prompt(3 + 19*kind), MaxTokens: 15 + 11*kind,
			Sampling: round.Sampling{Temperature: float32(kind%2) * 0.9, Seed: uint64(kind), Logprobs: -1, PresencePenalty: float32(kind%3) * 0.3},
			Drafting: Drafting{Mode: Mode(1 + kind%4)},
		}
	}
	quiet, _ := start(t, nil)
	var want [kinds]Event
	for kind := range want {
		want[kind] = collect(t, quiet, request(kind))
	}
	rng := rand.New(rand.NewPCG(11, 3))
	c, g := start(t, func(config *Config, g *coordinatortest.Group) {
		config.Batch, config.Blocks, config.ChunkRows, config.VerifyRows, config.Replays = 4, 60, 24, 32, 1000
		g.Blocks = 60
		rounds := rand.New(rand.NewPCG(7, 7))
		g.Before = func(context.Context, *round.Round) error {
			if rounds.IntN(25) == 0 {
				return errors.New("rank 1 was killed")
			}
			return nil
		}
	})
	ctx := testContext(t)
	var group sync.WaitGroup
	for range requests {
		kind, wait, cancelled := rng.IntN(kinds), time.Duration(rng.IntN(4000))*time.Microsecond, rng.IntN(3) == 0
		group.Go(func() {
			time.Sleep(wait)
			own, cancel := context.WithCancel(ctx)
			defer cancel()
			stream, err := c.Generate(own, request(kind))
			if err != nil {
				t.Error(err)
				return
			}
			if cancelled {
				time.AfterFunc(wait/2, cancel)
			}
			got, err := stream.Collect(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			ids, whole := tokenIDs(got), tokenIDs(want[kind])
			if len(ids) > len(whole) || !slices.Equal(ids, whole[:len(ids)]) || got.Finish.Reason == FinishLength && len(ids) != len(whole) {
				t.Errorf("kind %d, finish %v after %d replays: %v, want %v", kind, got.Finish.Reason, got.Finish.Replays, ids, whole)
			}
			if got.Finish.Err != nil || !cancelled && got.Finish.Reason != FinishLength {
				t.Errorf("kind %d ended with %v, %v", kind, got.Finish.Reason, got.Finish.Err)
			}
		})
	}
	group.Wait()
	atRest(t, c, g)
}
