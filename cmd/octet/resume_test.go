package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/octet-run/octet/coordinator"
	octetv1 "github.com/octet-run/octet/proto/octet/v1"
)

// served is a server of the embedded model, and a client of it.
type served struct {
	cmd    *exec.Cmd
	client *coordinator.Client
}

// startServed starts a server and waits until it is ready.
func startServed(t *testing.T, socket string, args ...string) *served {
	t.Helper()
	cmd := program(t.Context(), append([]string{"serve", "--ranks", "4", "--http", "off", "--socket", socket}, args...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	client, err := coordinator.Dial(socket, "")
	if err != nil {
		t.Fatal(err)
	}
	s := &served{cmd, client}
	t.Cleanup(func() {
		_ = client.Close()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	for deadline := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		if st, err := fetchStatus(t.Context(), client); err == nil && st.GetReady() {
			return s
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server is not ready after %v", limit)
		}
	}
}

// read reads a stream until it ends or most tokens have come.
func read(t *testing.T, client *coordinator.Client, q *octetv1.GenerateRequest, most int) (ids []int32, text string, finished bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	stream, err := client.Generate(ctx, q)
	if err != nil {
		t.Fatal(err)
	}
	for len(ids) < most {
		m, err := stream.Recv()
		if err != nil {
			t.Fatalf("after %d tokens: %v", len(ids), err)
		}
		if m.GetFinished() != nil {
			return ids, text, true
		}
		if tokens := m.GetTokens(); tokens != nil {
			if want := int(q.GetResumeOffset()) + len(ids); len(tokens.GetIds()) > 0 && int(tokens.GetOffset()) != want {
				t.Fatalf("token %d came where token %d was due", tokens.GetOffset(), want)
			}
			ids, text = append(ids, tokens.GetIds()...), text+tokens.GetText()
		}
	}
	return ids, text, false
}

func TestAServerThatIsKilledGoesOnWithItsRequests(t *testing.T) {
	if testing.Short() {
		t.Skip("starts two servers")
	}
	dir := t.TempDir()
	socket, log := filepath.Join(dir, "s"), filepath.Join(dir, "log")
	seed := uint64(11)
	request := func(id string, offset int) *octetv1.GenerateRequest {
		return &octetv1.GenerateRequest{
			RequestId: id, ResumeOffset: uint32(offset), MaxTokens: 400, IgnoreEos: true,
			Prompt:   &octetv1.GenerateRequest_Text{Text: "func Reverse(s string) string {\n"},
			Sampling: &octetv1.Sampling{Temperature: 0.8, Seed: &seed},
		}
	}
	first := startServed(t, socket, "--token-log", log)
	want, wantText, finished := read(t, first.client, request("whole", 0), 1<<20)
	if !finished || len(want) != 400 {
		t.Fatalf("the whole request: %d tokens, finished %v", len(want), finished)
	}
	// Cut by the death of the server, as its client sees it.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := first.client.Generate(ctx, request("cut", 0))
	if err != nil {
		t.Fatal(err)
	}
	var got []int32
	var text string
	for err == nil {
		var m *octetv1.GenerateResponse
		if m, err = stream.Recv(); err != nil {
			break
		}
		got, text = append(got, m.GetTokens().GetIds()...), text+m.GetTokens().GetText()
		if len(got) > 20 {
			_ = first.cmd.Process.Kill()
		}
	}
	_ = first.cmd.Wait()
	if len(got) == 0 || len(got) >= 400 {
		t.Fatalf("the server died after %d tokens, want some", len(got))
	}

	second := startServed(t, socket, "--token-log", log)
	rest, restText, finished := read(t, second.client, request("cut", len(got)), 1<<20)
	if all := append(got, rest...); !finished || !slices.Equal(all, want) {
		t.Errorf("%d tokens before and %d after are not the %d of the whole", len(got), len(rest), len(want))
	}
	if text+restText != wantText {
		t.Errorf("the text is %q, want %q", text+restText, wantText)
	}
}

func TestFaultsAreForServersThatAllowThem(t *testing.T) {
	if testing.Short() {
		t.Skip("starts two servers")
	}
	socket := filepath.Join(t.TempDir(), "s")
	careful := startServed(t, socket)
	_, err := careful.client.ArmFault(t.Context(), &octetv1.ArmFaultRequest{Script: "kill rank=1"})
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("armed without --allow-faults: %v", err)
	}
	if _, errs, code := octet(t, "fault", "clear", "--socket", socket); code != exitNotReady {
		t.Errorf("fault clear: exit code %d, %s", code, errs)
	}

	socket = filepath.Join(t.TempDir(), "s")
	open := startServed(t, socket, "--allow-faults")
	if _, err := open.client.ArmFault(t.Context(), &octetv1.ArmFaultRequest{Script: "kill rank=4"}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a rank that is none was taken: %v", err)
	}
	armed, err := open.client.ArmFault(t.Context(), &octetv1.ArmFaultRequest{Script: "kill rank=1\nat round 1000000 stop rank=2 for=1s"})
	if err != nil || len(armed.GetFaults()) != 2 {
		t.Fatalf("armed %v, %v", armed, err)
	}
	for deadline := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		st, err := fetchStatus(t.Context(), open.client)
		if err == nil && st.GetReady() && st.GetEpoch() > 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no second epoch after %v: %v", limit, st)
		}
	}
	list, err := open.client.ListFaults(t.Context(), &octetv1.ListFaultsRequest{})
	if err != nil || len(list.GetFaults()) != 2 || !list.GetFaults()[0].GetFired() || list.GetFaults()[1].GetFired() {
		t.Errorf("the list is %v, %v", list, err)
	}
	if cleared, err := open.client.ClearFaults(t.Context(), &octetv1.ClearFaultsRequest{}); err != nil || cleared.GetCleared() != 2 {
		t.Errorf("cleared %v, %v", cleared, err)
	}
}
