package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	octetv1 "github.com/octet-run/octet/proto/octet/v1"
)

// until waits for something that another process does.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}

// TestClientCommandsAnswerInOneDocument talks to a server on a relative socket
// whose parent, this test, has not collected it when octet stop looks for its end.
func TestClientCommandsAnswerInOneDocument(t *testing.T) {
	executable, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	const socket = "octet.sock"
	server := program(t.Context(), "serve", "--ranks", "2", "--http", "off", "--socket", socket)
	server.Path = executable
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	try := func(args ...string) (document map[string]any, stderr string, code int) {
		t.Helper()
		stdout, stderr, code := octet(t, append(args, "--socket", socket, "--json")...)
		_ = json.Unmarshal([]byte(stdout), &document)
		return document, stderr, code
	}
	ask := func(args ...string) map[string]any {
		t.Helper()
		document, stderr, code := try(args...)
		if code != exitOK || document == nil {
			t.Fatalf("%v: exit code %d, document %v, error %q", args, code, document, stderr)
		}
		return document
	}
	until(t, "the server is ready", func() bool { s, _, code := try("status"); return code == exitOK && s["ready"] == true })
	if got := ask("restart-rank", "1"); got["restarted"] != 1.0 {
		t.Errorf("restart-rank says %v", got)
	}
	until(t, "the second epoch", func() bool { s, _, code := try("top"); return code == exitOK && s["epoch"] == 2.0 })
	ask("ps")
	if _, stderr, code := try("cancel", "nobody"); code != exitNotReady {
		t.Errorf("a request that does not run: exit code %d, %q", code, stderr)
	}
	if got := ask("stop"); got["stopped"] != float64(server.Process.Pid) {
		t.Errorf("stop says %v", got)
	}
	if err := server.Wait(); err != nil {
		t.Error(err)
	}
}

// Every command says in its help what it is for and how it is called.
func TestEveryCommandHasAnExample(t *testing.T) {
	eachCommand(newRoot(), func(cmd *cobra.Command) {
		if cmd.Short == "" || cmd.Example == "" && !cmd.Hidden {
			t.Errorf("%s: short %q, example %q", cmd.CommandPath(), cmd.Short, cmd.Example)
		}
	})
}

func TestASecondServerAtASocketIsRefused(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	startServed(t, socket)
	_, stderr, code := octet(t, "serve", "--ranks", "1", "--http", "off", "--socket", socket)
	if code != exitNotReady || !strings.Contains(stderr, "another server answers") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}

func TestASecondSignalEndsADrainAndLeavesNoSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	server := startServed(t, socket, "--grace", "10m")
	stream, err := server.client.Generate(t.Context(), &octetv1.GenerateRequest{
		Prompt: &octetv1.GenerateRequest_Text{Text: "func main() {\n"}, IgnoreEos: true,
	})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.cmd.Wait() }()
	for deadline := time.Now().Add(limit); ; {
		_ = server.cmd.Process.Signal(syscall.SIGTERM) // which nobody ignores, as nohup does SIGHUP
		select {
		case <-ended:
			if _, err := os.Lstat(socket); err == nil {
				t.Error("the socket is left")
			}
			return
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server is still there after %v", limit)
		}
	}
}
