package coordinator

import (
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	octetv1 "github.com/octet-run/octet/proto/octet/v1"
)

func wireTokens(event Event) *octetv1.Tokens {
	tokens := &octetv1.Tokens{Offset: uint32(event.Offset), Text: event.Text}
	for _, token := range event.Tokens {
		tokens.Ids = append(tokens.Ids, token.ID)
		if token.Logprobs == nil {
			continue
		}
		logprobs := &octetv1.TokenLogprobs{Token: token.ID, Logprob: token.Logprobs.Logprob}
		for _, top := range token.Logprobs.Top {
			logprobs.Top = append(logprobs.Top, &octetv1.TokenLogprob{Token: top.Token, Logprob: top.Logprob})
		}
		tokens.Logprobs = append(tokens.Logprobs, logprobs)
	}
	return tokens
}

var wireReasons = map[FinishReason]octetv1.FinishReason{
	FinishStop:      octetv1.FinishReason_FINISH_REASON_STOP,
	FinishLength:    octetv1.FinishReason_FINISH_REASON_LENGTH,
	FinishCancelled: octetv1.FinishReason_FINISH_REASON_CANCELLED,
	FinishDeadline:  octetv1.FinishReason_FINISH_REASON_DEADLINE,
	FinishError:     octetv1.FinishReason_FINISH_REASON_ERROR,
}

func wireFinish(f *Finish) *octetv1.Finished {
	finished := &octetv1.Finished{
		Reason:          wireReasons[f.Reason],
		Stop:            f.Stop,
		PromptTokens:    uint32(f.PromptTokens),
		GeneratedTokens: uint32(f.GeneratedTokens),
		Rounds:          uint32(f.Rounds()),
		Replays:         uint32(f.Replays),
		Timings: &octetv1.GenerateTimings{
			Queued: durationpb.New(f.Timings.Queued), Prefill: durationpb.New(f.Timings.Prefill), Decode: durationpb.New(f.Timings.Decode),
		},
	}
	if f.Err != nil {
		finished.Error = f.Err.Error()
	}
	for _, n := range f.Accepted {
		finished.AcceptedPerRound = append(finished.AcceptedPerRound, uint32(n))
	}
	return finished
}

// wireStatus is what the coordinator itself knows for Status.
func wireStatus(config *Config, s Stats) *octetv1.StatusResponse {
	mean := s.MeanAcceptanceLength()
	shape := config.Drafting.Shape
	out := &octetv1.StatusResponse{
		Ready: s.Ready, NotReadyReason: s.Reason, Epoch: s.Epoch, Model: config.Model,
		Speculation: &octetv1.SpeculationStatus{
			Mode: config.Drafting.Mode.String(), State: draftState(s), MeanAcceptanceLength: mean,
			TopK: uint32(shape.TopK), Steps: uint32(shape.Steps), Tokens: uint32(shape.Nodes),
		},
		Queue: &octetv1.QueueStatus{
			Running: uint32(s.Running), Waiting: uint32(s.Waiting), Completed: s.Completed, Failed: s.Failed, TokensPerSecond: s.TokensPerSecond,
		},
		Kv: &octetv1.CacheStatus{
			TotalBlocks: uint32(config.Blocks), FreeBlocks: uint32(s.FreeBlocks), BlockTokens: uint32(config.BlockTokens),
		},
	}
	out.Speculation.Reason = s.Suspicion
	if !config.Eagle3 {
		out.Speculation.Reason = "there is no drafter network"
	}
	for _, r := range s.Requests {
		out.Requests = append(out.Requests, &octetv1.RequestStatus{
			RequestId: r.ID, State: r.State, PromptTokens: uint32(r.PromptTokens), GeneratedTokens: uint32(r.GeneratedTokens), Age: durationpb.New(r.Age),
		})
	}
	return out
}

// draftState says what the last decode round did.
func draftState(s Stats) string {
	switch {
	case s.LastRound.Sequences == 0:
		return "idle"
	case s.LastRound.Drafted == 0:
		return "off"
	}
	return "on"
}

func wireEvent(e GroupEvent) *octetv1.Event {
	out := &octetv1.Event{
		Time: timestamppb.New(e.Time), Kind: e.Kind, Epoch: e.Epoch, Round: e.Round, RequestId: e.Request, Message: e.Message,
	}
	if e.Rank >= 0 {
		rank := uint32(e.Rank)
		out.Rank = &rank
	}
	return out
}
