package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/coordinator"
	"github.com/octet-run/octet/faults"
	"github.com/octet-run/octet/faults/audit"
	"github.com/octet-run/octet/model/nano"
	octetv1 "github.com/octet-run/octet/proto/octet/v1"
	"github.com/octet-run/octet/speculation"
)

// traffic is the requests that run against a group while faults strike: each stream
// makes the same request again and again.
type traffic struct {
	coordinator *coordinator.Coordinator
	audit       *audit.Audit
	show        *showing
	requests    []coordinator.Request
	want        []audit.Output

	// blocksLeft is the KV blocks in use after the last request.
	blocksLeft int

	mu         sync.Mutex
	complete   int
	failed     int
	tokens     int
	firstError string
	errors     []error
	supervisor []audit.Level // in the course of the run
	ranks      []audit.Level // of all together
}

// requestLimit bounds a request: one that takes longer has not ended.
const requestLimit = 10 * time.Minute

// sampledTemperature is that of the streams that do not take the likeliest token.
const sampledTemperature = 0.8

func newTraffic(r *running, s *faultSettings, a *audit.Audit, show *showing) (*traffic, error) {
	l := &traffic{coordinator: r.coordinator, audit: a, show: show, want: make([]audit.Output, s.streams)}
	for i := range s.streams {
		prompt, err := streamPrompt(r, i)
		if err != nil {
			return nil, err
		}
		q := coordinator.Request{
			Prompt: prompt, MaxTokens: s.tokens, IgnoreEOS: true,
			Sampling: round.Sampling{TopP: 1, Seed: s.seed + uint64(i), Logprobs: -1, RepetitionPenalty: 1},
		}
		if i%2 == 0 {
			q.Sampling.Temperature = sampledTemperature
		}
		l.requests = append(l.requests, q)
	}
	return l, nil
}

// streamPrompt is what stream i continues: texts where there is a tokenizer.
func streamPrompt(r *running, i int) ([]int32, error) {
	config := r.coordinator.Config()
	if r.tokenizer == nil {
		prompt := make([]int32, 8)
		for k := range prompt {
			prompt[k] = int32((i*31 + k*7 + 1) % config.Vocab)
		}
		return prompt, nil
	}
	texts, err := nano.BenchPrompts()
	if err != nil {
		return nil, err
	}
	if i == 0 {
		return config.EncodePrompt(nano.Prompt)
	}
	return config.EncodePrompt(texts[i%len(texts)].Text)
}

// reference runs every stream once, without faults.
func (l *traffic) reference(ctx context.Context) error {
	failures := make([]error, len(l.requests))
	var all sync.WaitGroup
	for i := range l.requests {
		all.Go(func() {
			s, err := l.request(ctx, i, "reference", nil)
			l.want[i] = s.Output()
			if err == nil && !s.Complete() {
				err = fmt.Errorf("stream %d did not end", i)
			}
			failures[i] = err
		})
	}
	all.Wait()
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("without faults: %w", err)
	}
	return nil
}

// run has every stream make requests until over says so, and judges each.
func (l *traffic) run(ctx context.Context, over func() bool) error {
	var all sync.WaitGroup
	for i := range l.requests {
		all.Go(func() {
			for n := 0; ctx.Err() == nil && (n == 0 || !over()); n++ {
				var show *showing
				if i == 0 && n == 0 {
					show = l.show
				}
				s, err := l.request(ctx, i, fmt.Sprintf("request %d", n), show)
				if ctx.Err() != nil {
					return
				}
				l.audit.Stream(s, l.want[i])
				l.count(s, err)
				var group *coordinator.GroupError
				if errors.As(err, &group) {
					return // there is no group any more
				}
			}
		})
	}
	all.Wait()
	return ctx.Err()
}

// request makes one request of a stream. err is what it ended with.
func (l *traffic) request(ctx context.Context, i int, name string, show *showing) (*audit.Stream, error) {
	seen := &audit.Stream{Name: fmt.Sprintf("stream %d, %s", i, name)}
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	stream, err := l.coordinator.Generate(ctx, l.requests[i])
	if err != nil {
		seen.End(err.Error(), isTyped(err))
		return seen, err
	}
	defer stream.Close()
	for {
		event, err := stream.Next(context.WithoutCancel(ctx))
		if err != nil {
			return seen, nil // io.EOF, after the end
		}
		ids := make([]int32, len(event.Tokens))
		for k, t := range event.Tokens {
			ids[k] = t.ID
		}
		seen.Deliver(event.Offset, ids, event.Text)
		show.text(event.Text)
		if f := event.Finish; f != nil {
			switch {
			case f.Err != nil:
				seen.End(f.Err.Error(), isTyped(f.Err))
				return seen, f.Err
			case f.Reason == coordinator.FinishDeadline:
				err := fmt.Errorf("no end after %v", requestLimit)
				seen.End(err.Error(), false)
				return seen, err
			}
			seen.End("", false)
			show.end()
		}
	}
}

// isTyped reports whether clients can tell an error from others.
func isTyped(err error) bool {
	var group *coordinator.GroupError
	var sequence *coordinator.SequenceError
	var request *coordinator.RequestError
	var param *speculation.ParamError
	return errors.As(err, &group) || errors.As(err, &sequence) || errors.As(err, &request) || errors.As(err, &param) ||
		errors.Is(err, coordinator.ErrClosed) || errors.Is(err, coordinator.ErrDraining) || errors.Is(err, coordinator.ErrQueueFull) ||
		errors.Is(err, faults.ErrInjected)
}

// mostErrors is how many errors are kept.
const mostErrors = 64

func (l *traffic) count(s *audit.Stream, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tokens += len(s.Output().Tokens)
	if err == nil && s.Complete() {
		l.complete++
		return
	}
	l.failed++
	if err != nil && len(l.errors) < mostErrors {
		l.errors = append(l.errors, err)
	}
	if err != nil && l.firstError == "" {
		l.firstError = err.Error()
	}
}

// measure notes what is held now; health are the ranks that told, pids all of them.
func (l *traffic) measure(health []*octetv1.Health, pids []int) {
	own := levelOf(os.Getpid())
	own.Goroutines = runtime.NumGoroutine()
	var ranks audit.Level
	for r, h := range health {
		if h == nil {
			return // while a group forms, what it holds says nothing
		}
		one := levelOf(pids[r])
		ranks.Bytes += one.Bytes
		ranks.Goroutines += int(h.GetGoroutines())
		ranks.Files += one.Files
		ranks.Segments += one.Segments
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.supervisor, l.ranks = append(l.supervisor, own), append(l.ranks, ranks)
}

const (
	// fewSamples are too few to tell growth from a beginning.
	fewSamples = 40
	// levelSamples are taken together for a level.
	levelSamples = 10
)

// growth is what some processes held after a quarter of a run, when caches were full,
// and at its end.
type growth struct {
	Early audit.Level `json:"early"`
	Late  audit.Level `json:"late"`
}

// growth is that of the supervisor and of the ranks together; none for a run too short
// to tell.
func (l *traffic) growth() map[string]growth {
	l.mu.Lock()
	defer l.mu.Unlock()
	grown := map[string]growth{}
	for who, levels := range map[string][]audit.Level{"the supervisor": l.supervisor, "the ranks together": l.ranks} {
		if n := len(levels); n >= fewSamples {
			grown[who] = growth{audit.LevelOf(levels[n/4:][:levelSamples]), audit.LevelOf(levels[n-levelSamples:])}
		}
	}
	return grown
}
