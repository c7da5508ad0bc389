package coordinator

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/coordinator/coordinatortest"
	octetv1 "github.com/octet-run/octet/proto/octet/v1"
)

// serve answers on a fresh Unix socket and returns a client.
func serve(t *testing.T, c *Coordinator, host Host) *Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "octet.sock")
	listener, err := ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, NewServer(c, host, "secret"), listener, path, "")
}

func serveOn(t *testing.T, server *Server, listener net.Listener, address, token string) *Client {
	t.Helper()
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	client, err := Dial(address, token)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		server.Stop(ctx)
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return client
}

func wirePrompt(tokens []int32) *octetv1.GenerateRequest_PromptIds {
	return &octetv1.GenerateRequest_PromptIds{PromptIds: &octetv1.TokenIds{Ids: tokens}}
}

// receive reads a Generate stream to its end.
func receive(stream octetv1.Coordinator_GenerateClient) (ids []int32, finished *octetv1.Finished, err error) {
	first, err := stream.Recv()
	if err != nil {
		return nil, nil, err
	}
	if first.GetAccepted() == nil {
		return nil, nil, errors.New("the first message is not Accepted")
	}
	for {
		in, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return ids, finished, nil
		}
		if err != nil {
			return ids, finished, err
		}
		if tokens := in.GetTokens(); tokens != nil {
			if int(tokens.GetOffset()) != len(ids) {
				return ids, nil, errors.New("an offset does not follow")
			}
			ids = append(ids, tokens.GetIds()...)
		}
		finished = in.GetFinished()
	}
}

func TestGRPCGeneratesWhatTheCoordinatorDoes(t *testing.T) {
	c, g := start(t, nil)
	client := serve(t, c, Host{})
	seed := uint64(4)
	stream, err := client.Generate(testContext(t), &octetv1.GenerateRequest{
		Prompt: wirePrompt(prompt(12)), MaxTokens: 30,
		Sampling: &octetv1.Sampling{Temperature: 0.7, TopP: 0.9, Seed: &seed},
	})
	if err != nil {
		t.Fatal(err)
	}
	ids, finished, err := receive(stream)
	if err != nil {
		t.Fatal(err)
	}
	want := collect(t, c, Request{Prompt: prompt(12), MaxTokens: 30, Sampling: round.Sampling{Temperature: 0.7, TopP: 0.9, Seed: 4, Logprobs: -1}})
	if !slices.Equal(ids, tokenIDs(want)) || finished.GetGeneratedTokens() != 30 || finished.GetReason() != octetv1.FinishReason_FINISH_REASON_LENGTH {
		t.Errorf("got %v, %v", ids, finished)
	}
	if int(finished.GetRounds()) != len(finished.GetAcceptedPerRound()) {
		t.Errorf("%d rounds, %v", finished.GetRounds(), finished.GetAcceptedPerRound())
	}
	atRest(t, c, g)
}

func TestGRPCErrorsHaveTheirCodes(t *testing.T) {
	c, _ := start(t, nil)
	client := serve(t, c, Host{})
	for name, in := range map[string]*octetv1.GenerateRequest{
		"no prompt":    {},
		"text":         {Prompt: &octetv1.GenerateRequest_Text{Text: "x"}},
		"chat":         {Prompt: &octetv1.GenerateRequest_Chat{Chat: &octetv1.Chat{}}},
		"out of vocab": {Prompt: wirePrompt([]int32{testVocab})},
		"bad top_p":    {Prompt: wirePrompt(prompt(2)), Sampling: &octetv1.Sampling{TopP: 2}},
		"bad mode":     {Prompt: wirePrompt(prompt(2)), Speculation: &octetv1.Speculation{Mode: 99}},
		"lost resume":  {Prompt: wirePrompt(prompt(2)), RequestId: "gone", ResumeOffset: 3, Sampling: &octetv1.Sampling{Temperature: 1}},
		"bad tree":     {Prompt: wirePrompt(prompt(2)), Speculation: &octetv1.Speculation{TopK: 2, Steps: 2, Tokens: 60}},
	} {
		stream, err := client.Generate(testContext(t), in)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := client.Tune(testContext(t), &octetv1.TuneRequest{})
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("tune: %v", err)
	}
	_, err = client.ArmFault(testContext(t), &octetv1.ArmFaultRequest{})
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("arm fault: %v", err)
	}
}

func TestGRPCDeadlineCancelAndDisconnectFreeEverything(t *testing.T) {
	c, g := start(t, func(_ *Config, g *coordinatortest.Group) {
		g.Cost = func(*round.Round) (draft, verify time.Duration) { return 0, 20 * time.Millisecond }
	})
	client := serve(t, c, Host{})
	in := &octetv1.GenerateRequest{RequestId: "long", Prompt: wirePrompt(prompt(12)), MaxTokens: 1900}

	ctx, cancel := context.WithTimeout(testContext(t), 40*time.Millisecond)
	defer cancel()
	stream, err := client.Generate(ctx, in)
	if err == nil {
		_, _, err = receive(stream)
	}
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("deadline: %v", err)
	}
	atRest(t, c, g)

	stream, err = client.Generate(testContext(t), in)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	answer, err := client.Cancel(testContext(t), &octetv1.CancelRequest{RequestId: "long"})
	if err != nil || !answer.GetFound() {
		t.Errorf("cancel: found %v, %v", answer.GetFound(), err)
	}
	var finished *octetv1.Finished
	for finished == nil {
		in, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		finished = in.GetFinished()
	}
	if finished.GetReason() != octetv1.FinishReason_FINISH_REASON_CANCELLED {
		t.Errorf("cancelled: %v", finished)
	}
	atRest(t, c, g)

	ctx, cancel = context.WithCancel(testContext(t))
	stream, err = client.Generate(ctx, in)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	cancel() // the client goes away
	atRest(t, c, g)
}

func TestGRPCStatusEventsHealthAndDrain(t *testing.T) {
	c, g := start(t, nil)
	client := serve(t, c, Host{Status: func(s *octetv1.StatusResponse) { s.Backend = "toy" }})
	ctx := testContext(t)
	collect(t, c, Request{Prompt: prompt(12), MaxTokens: 30, Sampling: greedy()})
	atRest(t, c, g) // a round after the answer gives the blocks back
	s, err := client.Status(ctx, &octetv1.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if !s.GetReady() || s.GetEpoch() != 1 || s.GetModel() != "toy" || s.GetBackend() != "toy" || s.GetQueue().GetCompleted() != 1 ||
		s.GetKv().GetFreeBlocks() != s.GetKv().GetTotalBlocks() || s.GetSpeculation().GetMeanAcceptanceLength() <= 1 {
		t.Errorf("status %v", s)
	}

	awaitHealth(t, client, healthv1.HealthCheckResponse_SERVING)

	events, err := client.WatchEvents(ctx, &octetv1.WatchEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := events.Header(); err != nil {
		t.Fatal(err)
	}
	drained, err := client.Drain(ctx, &octetv1.DrainRequest{Grace: durationpb.New(limit)})
	if err != nil || drained.GetCut() != 0 {
		t.Errorf("drained %v, %v", drained, err)
	}
	event, err := events.Recv()
	if err != nil || event.GetKind() != EventDraining {
		t.Errorf("event %v, %v", event, err)
	}
	stream, err := client.Generate(ctx, &octetv1.GenerateRequest{Prompt: wirePrompt(prompt(3))})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("while draining: %v", err)
	}
	awaitHealth(t, client, healthv1.HealthCheckResponse_NOT_SERVING)
}

// awaitHealth waits until the health service says so.
func awaitHealth(t *testing.T, client *Client, want healthv1.HealthCheckResponse_ServingStatus) {
	t.Helper()
	health := healthv1.NewHealthClient(client.conn)
	for deadline := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		answer, err := health.Check(testContext(t), &healthv1.HealthCheckRequest{Service: "octet.v1.Coordinator"})
		if err != nil {
			t.Fatal(err)
		}
		if answer.GetStatus() == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("health is %v, want %v", answer.GetStatus(), want)
		}
	}
}

func TestGRPCReflectionNamesTheService(t *testing.T) {
	c, _ := start(t, nil)
	client := serve(t, c, Host{})
	stream, err := reflectionv1.NewServerReflectionClient(client.conn).ServerReflectionInfo(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	err = stream.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range answer.GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	if !slices.Contains(names, "octet.v1.Coordinator") {
		t.Errorf("services %v", names)
	}
}

func TestTheUnixSocketIsItsOwnersAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	listener, err := ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, err := ListenUnix(path); err == nil {
		t.Error("took a socket that a server answers on")
	}
	if err := listener.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the socket was left behind: %v", err)
	}

	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()
	again, err := ListenUnix(path)
	if err != nil {
		t.Fatalf("did not replace a socket that was left behind: %v", err)
	}
	again.Close()
}

func TestAFileThatIsNoSocketIsNotReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notes")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if listener, err := ListenUnix(path); err == nil {
		listener.Close()
		t.Error("listens where a file was")
	}
	if text, err := os.ReadFile(path); string(text) != "mine" {
		t.Errorf("the file holds %q, %v", text, err)
	}
}

func TestTCPWantsAToken(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "example.com:0"} {
		if l, err := ListenTCP(address, "", false); err == nil {
			l.Close()
			t.Errorf("listened on %s without a token", address)
		}
	}
	listener, err := ListenTCP("127.0.0.1:0", "", false)
	if err != nil {
		t.Fatal(err)
	}
	c, _ := start(t, nil)
	server := NewServer(c, Host{}, "secret")
	address := listener.Addr().String()
	client := serveOn(t, server, listener, address, "secret")
	if _, err := client.Status(testContext(t), &octetv1.StatusRequest{}); err != nil {
		t.Errorf("with the token: %v", err)
	}
	for _, token := range []string{"", "secre", "secrets"} {
		other, err := Dial(address, token)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.Status(testContext(t), &octetv1.StatusRequest{}); status.Code(err) != codes.Unauthenticated {
			t.Errorf("with token %q: %v", token, err)
		}
		stream, err := other.Generate(testContext(t), &octetv1.GenerateRequest{Prompt: wirePrompt(prompt(3))})
		if err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) != codes.Unauthenticated {
			t.Errorf("stream with token %q: %v", token, err)
		}
		other.Close()
	}
}
