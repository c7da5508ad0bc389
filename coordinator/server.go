package coordinator

import (
	"context"
	"errors"
	"fmt"
	"math"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/model/tokenizer"
	octetv1 "github.com/octet-run/octet/proto/octet/v1"
	"github.com/octet-run/octet/speculation"
)

// service is octet.v1.Coordinator.
type service struct {
	octetv1.UnimplementedCoordinatorServer
	coordinator *Coordinator
	host        Host
}

// Generate implements octetv1.CoordinatorServer. Its stream's context is the
// request's: a client that goes away, or whose deadline passes, ends the request
// within one round.
func (s *service) Generate(in *octetv1.GenerateRequest, out octetv1.Coordinator_GenerateServer) error {
	request, err := s.request(in)
	if err != nil {
		return statusOf(err)
	}
	stream, err := s.coordinator.Generate(out.Context(), request)
	if err != nil {
		return statusOf(err)
	}
	defer stream.Close()
	err = out.Send(&octetv1.GenerateResponse{Event: &octetv1.GenerateResponse_Accepted{Accepted: &octetv1.Accepted{
		RequestId: stream.ID(), Model: s.coordinator.config.Model, PromptIds: stream.Prompt(),
	}}})
	for err == nil {
		var event Event
		// Not the call's context: the end of a cancelled request is still told, with its counts.
		if event, err = stream.Next(context.WithoutCancel(out.Context())); err != nil {
			break
		}
		if err = sendEvent(out, event); err == nil && event.Finish != nil {
			return nil
		}
	}
	return statusOf(err)
}

func sendEvent(out octetv1.Coordinator_GenerateServer, event Event) error {
	if len(event.Tokens) > 0 || event.Text != "" {
		err := out.Send(&octetv1.GenerateResponse{Event: &octetv1.GenerateResponse_Tokens{Tokens: wireTokens(event)}})
		if err != nil {
			return err
		}
	}
	if event.Finish == nil {
		return nil
	}
	return out.Send(&octetv1.GenerateResponse{Event: &octetv1.GenerateResponse_Finished{Finished: wireFinish(event.Finish)}})
}

// request turns the wire's form into ours.
func (s *service) request(in *octetv1.GenerateRequest) (Request, error) {
	r := Request{
		ID:        in.GetRequestId(),
		Resume:    int(in.GetResumeOffset()),
		MaxTokens: int(in.GetMaxTokens()),
		Stop:      in.GetStop(),
		StopIDs:   in.GetStopTokenIds(),
		IgnoreEOS: in.GetIgnoreEos(),
		Sampling:  readSampling(in),
	}
	if err := s.checkResume(in); err != nil {
		return Request{}, err
	}
	var err error
	if r.Prompt, err = s.prompt(in); err != nil {
		return Request{}, err
	}
	r.Drafting, err = readDrafting(in.GetSpeculation())
	return r, err
}

// checkResume refuses to go on with a request that is not in the log where it drew
// from a seed of ours: another one would give another text.
func (s *service) checkResume(in *octetv1.GenerateRequest) error {
	w := in.GetSampling()
	if in.GetResumeOffset() == 0 || w.GetTemperature() == 0 || w.Seed != nil {
		return nil
	}
	if _, ok := s.coordinator.config.Log.Find(in.GetRequestId()); !ok {
		return refuse("resume_offset", "names request %q, which is no longer known: begin again, or give a seed from the start", in.GetRequestId())
	}
	return nil
}

func (s *service) prompt(in *octetv1.GenerateRequest) ([]int32, error) {
	config := &s.coordinator.config
	switch p := in.GetPrompt().(type) {
	case *octetv1.GenerateRequest_PromptIds:
		return p.PromptIds.GetIds(), nil
	case *octetv1.GenerateRequest_Text:
		return config.EncodePrompt(p.Text)
	case *octetv1.GenerateRequest_Chat:
		messages := []tokenizer.Message{}
		for _, m := range p.Chat.GetMessages() {
			messages = append(messages, tokenizer.Message{Role: m.GetRole(), Content: m.GetContent()})
		}
		return config.EncodeChat(tokenizer.Conversation{
			Messages: tokenizer.TextMessages(messages...), Tools: []byte(p.Chat.GetToolsJson()), AddGenerationPrompt: true,
		})
	}
	return nil, refuse("prompt", "is missing: give text, prompt_ids or chat")
}

func readSampling(in *octetv1.GenerateRequest) round.Sampling {
	w := in.GetSampling()
	s := round.Sampling{
		Temperature: w.GetTemperature(), TopK: w.GetTopK(), TopP: w.GetTopP(), MinP: w.GetMinP(), Seed: w.GetSeed(),
		RepetitionPenalty: w.GetRepetitionPenalty(), PresencePenalty: w.GetPresencePenalty(), FrequencyPenalty: w.GetFrequencyPenalty(),
		LogitBias: w.GetLogitBias(), Logprobs: -1,
	}
	if w == nil || w.Seed == nil {
		s.Seed = RandomSeed()
	}
	if in.Logprobs != nil {
		s.Logprobs = int32(min(in.GetLogprobs(), math.MaxInt32))
	}
	return s
}

var wireModes = map[octetv1.SpeculationMode]Mode{
	octetv1.SpeculationMode_SPECULATION_MODE_UNSPECIFIED: ModeDefault,
	octetv1.SpeculationMode_SPECULATION_MODE_AUTO:        ModeAuto,
	octetv1.SpeculationMode_SPECULATION_MODE_OFF:         ModeOff,
	octetv1.SpeculationMode_SPECULATION_MODE_EAGLE3:      ModeEagle3,
	octetv1.SpeculationMode_SPECULATION_MODE_NGRAM:       ModeNGram,
}

func readDrafting(in *octetv1.Speculation) (Drafting, error) {
	mode, ok := wireModes[in.GetMode()]
	if !ok {
		return Drafting{}, refuse("speculation", "has the unknown mode %d", in.GetMode())
	}
	shape := speculation.Shape{TopK: int(in.GetTopK()), Steps: int(in.GetSteps()), Nodes: int(in.GetTokens())}
	if shape.TopK == 1 && shape.Nodes == 0 {
		shape = speculation.Chain(shape.Steps)
	}
	return Drafting{Mode: mode, Shape: shape}, nil
}

// statusOf is the gRPC status of an error of Generate.
func statusOf(err error) error {
	var requestError *RequestError
	var paramError *speculation.ParamError
	var groupError *GroupError
	code := codes.Internal
	switch {
	case err == nil:
		return nil
	case errors.As(err, &requestError), errors.As(err, &paramError):
		code = codes.InvalidArgument
	case errors.Is(err, ErrQueueFull):
		code = codes.ResourceExhausted
	case errors.Is(err, ErrDraining), errors.Is(err, ErrClosed), errors.As(err, &groupError):
		code = codes.Unavailable
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	default:
		if s, ok := status.FromError(err); ok {
			return s.Err()
		}
	}
	return status.Error(code, err.Error())
}

// Cancel implements octetv1.CoordinatorServer.
func (s *service) Cancel(_ context.Context, in *octetv1.CancelRequest) (*octetv1.CancelResponse, error) {
	return &octetv1.CancelResponse{Found: s.coordinator.Cancel(in.GetRequestId(), FinishCancelled)}, nil
}

// Drain implements octetv1.CoordinatorServer.
func (s *service) Drain(ctx context.Context, in *octetv1.DrainRequest) (*octetv1.DrainResponse, error) {
	if grace := in.GetGrace(); grace != nil {
		if err := grace.CheckValid(); err != nil {
			return nil, status.Error(codes.InvalidArgument, fmt.Sprintf("grace: %v", err))
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, grace.AsDuration())
		defer cancel()
	}
	finished, cut := s.coordinator.Drain(ctx)
	return &octetv1.DrainResponse{Finished: uint32(finished), Cut: uint32(cut)}, nil
}
