package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/octet-run/octet/coordinator"
	octetv1 "github.com/octet-run/octet/proto/octet/v1"
)

const callTimeout = 10 * time.Second

func registerSocket(flags *pflag.FlagSet, socket *string) {
	flags.StringVar(socket, "socket", defaultSocket(), "Unix socket of the server")
}

// clientCommand is a command that talks to a running server.
func clientCommand(use, short, example string, args cobra.PositionalArgs,
	run func(cmd *cobra.Command, client *coordinator.Client, args []string) error,
) *cobra.Command {
	var socket, token string
	cmd := &cobra.Command{
		Use: use, Short: short, Example: example, Args: args,
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := coordinator.Dial(socket, token)
			if err != nil {
				return err
			}
			defer client.Close()
			return rpcError(run(cmd, client, args), socket)
		},
	}
	registerSocket(cmd.Flags(), &socket)
	cmd.Flags().StringVar(&token, "token", "", "bearer token, for servers on TCP")
	return cmd
}

// rpcError turns a gRPC status into the sentence in it.
func rpcError(err error, socket string) error {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	switch s.Code() {
	case codes.Unavailable:
		return noServer(socket)
	case codes.FailedPrecondition, codes.PermissionDenied, codes.Unimplemented:
		return refusedError{fmt.Errorf("%s", s.Message())}
	case codes.InvalidArgument:
		return usageError{fmt.Errorf("%s", s.Message())}
	}
	return fmt.Errorf("%s", s.Message())
}

func noServer(socket string) error {
	return refusedError{fmt.Errorf("no server answers at %s: start one with octet serve, or name its socket with --socket", socket)}
}

func newStatus() *cobra.Command {
	return clientCommand("status", "Say whether the server is ready, and what each rank does",
		"  octet status --json", cobra.NoArgs,
		func(cmd *cobra.Command, client *coordinator.Client, _ []string) error {
			s, err := fetchStatus(cmd.Context(), client)
			if err != nil {
				return err
			}
			if wantJSON(cmd) {
				err = printJSON(cmd, statusDocument(s))
			} else {
				drawStatus(cmd.OutOrStdout(), s)
			}
			if err == nil && !s.GetReady() {
				return refusedError{fmt.Errorf("not ready: %s", s.GetNotReadyReason())}
			}
			return err
		})
}

func newTop() *cobra.Command {
	var every time.Duration
	cmd := clientCommand("top", "Show the server's status again and again until Ctrl-C; with --json once",
		"  octet top --every 500ms", cobra.NoArgs,
		func(cmd *cobra.Command, client *coordinator.Client, _ []string) error {
			if every <= 0 {
				return usagef("--every must be positive, got %v", every)
			}
			for {
				s, err := fetchStatus(cmd.Context(), client)
				if err != nil {
					return interrupted(cmd.Context(), err)
				}
				if wantJSON(cmd) { // one document: one look
					return printJSON(cmd, statusDocument(s))
				}
				fmt.Fprint(cmd.OutOrStdout(), "\x1b[H\x1b[2J")
				drawStatus(cmd.OutOrStdout(), s)
				select {
				case <-cmd.Context().Done():
					return nil
				case <-time.After(every):
				}
			}
		})
	cmd.Flags().DurationVar(&every, "every", time.Second, "time between two looks")
	return cmd
}

func newPs() *cobra.Command {
	return clientCommand("ps", "List the requests that run", "  octet ps", cobra.NoArgs,
		func(cmd *cobra.Command, client *coordinator.Client, _ []string) error {
			s, err := fetchStatus(cmd.Context(), client)
			if err != nil {
				return err
			}
			if wantJSON(cmd) {
				return printJSON(cmd, map[string]any{"requests": requestDocuments(s)})
			}
			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(table, "REQUEST\tSTATE\tPROMPT\tGENERATED\tAGE")
			for _, q := range s.GetRequests() {
				fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%v\n", q.GetRequestId(), q.GetState(), q.GetPromptTokens(), q.GetGeneratedTokens(),
					q.GetAge().AsDuration().Round(time.Millisecond))
			}
			return table.Flush()
		})
}

func newDrain() *cobra.Command {
	var grace time.Duration
	cmd := clientCommand("drain", "Take no new requests and wait until those in flight are finished",
		"  octet drain --grace 1m", cobra.NoArgs,
		func(cmd *cobra.Command, client *coordinator.Client, _ []string) error {
			if grace < 0 {
				return usagef("--grace must not be negative, got %v", grace)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), grace+callTimeout)
			defer cancel()
			done, err := client.Drain(ctx, &octetv1.DrainRequest{Grace: durationpb.New(grace)})
			if err != nil {
				return err
			}
			if wantJSON(cmd) {
				return printJSON(cmd, map[string]any{"finished": done.GetFinished(), "cut": done.GetCut()})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d requests finished, %d were cut\n", done.GetFinished(), done.GetCut())
			return nil
		})
	cmd.Flags().DurationVar(&grace, "grace", 30*time.Second, "how long requests may take")
	return cmd
}

func newRestartRank() *cobra.Command {
	notARank := func(text string) error { return usagef("%q is not the number of a rank, such as 3", text) }
	cmd := clientCommand("restart-rank N", "End one rank's process; the group forms again and requests go on",
		"  octet restart-rank 3", cobra.ExactArgs(1),
		func(cmd *cobra.Command, client *coordinator.Client, args []string) error {
			ids, err := parseIDs(args[0])
			if err != nil || len(ids) != 1 || ids[0] < 0 {
				return notARank(args[0])
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), callTimeout)
			defer cancel()
			if _, err = client.RestartRank(ctx, &octetv1.RestartRankRequest{Rank: uint32(ids[0])}); err != nil || !wantJSON(cmd) {
				return err
			}
			return printJSON(cmd, map[string]any{"restarted": ids[0]})
		})
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		var unknown *pflag.NotExistError
		if errors.As(err, &unknown) && strings.Trim(unknown.GetSpecifiedShortnames(), "0123456789") == "" && unknown.GetSpecifiedShortnames() != "" {
			return notARank("-" + unknown.GetSpecifiedShortnames())
		}
		return usageError{flagError(cmd, err)}
	})
	return cmd
}

// newStop ends a server by SIGTERM. The socket tells whose it is.
func newStop() *cobra.Command {
	var socket string
	var wait time.Duration
	cmd := &cobra.Command{
		Use: "stop", Short: "Tell the server to drain and leave, and wait until it is gone",
		Example: "  octet stop", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pid, err := serverPID(socket)
			if err != nil {
				return err
			}
			process, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				return fmt.Errorf("find the server, process %d: %w", pid, err)
			}
			defer unix.Close(process)
			if err := unix.PidfdSendSignal(process, unix.SIGTERM, nil, 0); err != nil {
				return fmt.Errorf("end the server, process %d: %w", pid, err)
			}
			if err := waitGone(cmd.Context(), process, wait); err != nil {
				return fmt.Errorf("the server, process %d, %w", pid, err)
			}
			if wantJSON(cmd) {
				return printJSON(cmd, map[string]any{"stopped": pid})
			}
			return nil
		},
	}
	registerSocket(cmd.Flags(), &socket)
	cmd.Flags().DurationVar(&wait, "wait", time.Minute, "how long to wait for it")
	return cmd
}

// serverPID asks the kernel who listens on the socket. The connection is closed at
// once: a server that leaves waits for its clients.
func serverPID(socket string) (int, error) {
	conn, err := net.DialTimeout("unix", socket, callTimeout)
	if err != nil {
		return 0, noServer(socket)
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var credentials *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		credentials, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil || failed != nil {
		return 0, fmt.Errorf("find the server's process: %w", errors.Join(err, failed))
	}
	return int(credentials.Pid), nil
}

// waitGone waits until the process of a pidfd has ended, collected by its parent
// or not.
func waitGone(ctx context.Context, process int, wait time.Duration) error {
	const look = 20 * time.Millisecond
	for deadline := time.Now().Add(wait); time.Now().Before(deadline); {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}, int(look.Milliseconds()))
		switch {
		case n > 0:
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return err
		case ctx.Err() != nil:
			return errInterrupted
		}
	}
	return fmt.Errorf("is still there after %v", wait)
}

func fetchStatus(ctx context.Context, client *coordinator.Client) (*octetv1.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return client.Status(ctx, &octetv1.StatusRequest{})
}

// statusDocument is the JSON form of the status. Its names are stable.
func statusDocument(s *octetv1.StatusResponse) map[string]any {
	ranks := []map[string]any{}
	for _, k := range s.GetRanks() {
		ranks = append(ranks, map[string]any{
			"rank": k.GetRank(), "pid": k.GetPid(), "device": k.GetDevice(), "numa": k.GetNuma(), "state": stateName(k.GetState()),
			"round_ms": k.GetRoundMs(), "skew_us": k.GetSkewUs(), "restarts": k.GetRestarts(), "last_error": k.GetLastError(),
		})
	}
	spec, queue, kv := s.GetSpeculation(), s.GetQueue(), s.GetKv()
	return map[string]any{
		"ready": s.GetReady(), "reason": s.GetNotReadyReason(), "epoch": s.GetEpoch(), "model": s.GetModel(), "backend": s.GetBackend(),
		"version": s.GetVersion(), "uptime_s": s.GetUptime().AsDuration().Seconds(), "ranks": ranks,
		"restarts": s.GetRestartsInWindow(),
		"plan":     map[string]any{"hash": s.GetPlan().GetHash()},
		"speculation": map[string]any{
			"mode": spec.GetMode(), "state": spec.GetState(), "reason": spec.GetReason(), "mean_acceptance_length": spec.GetMeanAcceptanceLength(),
			"topk": spec.GetTopK(), "steps": spec.GetSteps(), "tokens": spec.GetTokens(),
		},
		"queue": map[string]any{
			"running": queue.GetRunning(), "waiting": queue.GetWaiting(), "completed": queue.GetCompleted(), "failed": queue.GetFailed(),
			"tokens_per_s": queue.GetTokensPerSecond(),
		},
		"kv":       map[string]any{"blocks": kv.GetTotalBlocks(), "free": kv.GetFreeBlocks(), "block_tokens": kv.GetBlockTokens()},
		"requests": requestDocuments(s),
		"gpus":     gpuDocuments(s),
	}
}

func requestDocuments(s *octetv1.StatusResponse) []map[string]any {
	list := []map[string]any{}
	for _, q := range s.GetRequests() {
		list = append(list, map[string]any{
			"id": q.GetRequestId(), "state": q.GetState(), "prompt_tokens": q.GetPromptTokens(),
			"generated_tokens": q.GetGeneratedTokens(), "age_s": q.GetAge().AsDuration().Seconds(),
		})
	}
	return list
}

func stateName(s octetv1.RankState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "RANK_STATE_"))
}

func drawStatus(w io.Writer, s *octetv1.StatusResponse) {
	ready := "ready"
	if !s.GetReady() {
		ready = "not ready: " + s.GetNotReadyReason()
	}
	queue, kv, spec := s.GetQueue(), s.GetKv(), s.GetSpeculation()
	fmt.Fprintf(w, "%s  %s  epoch %d  up %v\n", s.GetModel(), ready, s.GetEpoch(), s.GetUptime().AsDuration().Round(time.Second))
	fmt.Fprintf(w, "requests  %d running, %d waiting, %d completed, %d failed  %.0f tokens/s\n",
		queue.GetRunning(), queue.GetWaiting(), queue.GetCompleted(), queue.GetFailed(), queue.GetTokensPerSecond())
	fmt.Fprintf(w, "KV cache  %d of %d blocks free\n", kv.GetFreeBlocks(), kv.GetTotalBlocks())
	fmt.Fprintf(w, "drafting  %s  %.2f tokens a round\n\n", spec.GetMode(), spec.GetMeanAcceptanceLength())
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "RANK\tPID\tDEVICE\tNUMA\tSTATE\tROUND ms\tSKEW us\tRESTARTS\tLAST ERROR")
	for _, k := range s.GetRanks() {
		fmt.Fprintf(table, "%d\t%d\t%s\t%d\t%s\t%.2f\t%.0f\t%d\t%s\n", k.GetRank(), k.GetPid(), k.GetDevice(), k.GetNuma(),
			stateName(k.GetState()), k.GetRoundMs(), k.GetSkewUs(), k.GetRestarts(), k.GetLastError())
	}
	_ = table.Flush()
	drawGPUs(w, s)
}

// newCancel ends a request by its id.
func newCancel() *cobra.Command {
	return clientCommand("cancel REQUEST", "End a request that runs", "  octet cancel req-1f00", cobra.ExactArgs(1),
		func(cmd *cobra.Command, client *coordinator.Client, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), callTimeout)
			defer cancel()
			answer, err := client.Cancel(ctx, &octetv1.CancelRequest{RequestId: args[0]})
			if err == nil && !answer.GetFound() {
				return refusedError{fmt.Errorf("no request %q runs; octet ps lists those that do", args[0])}
			}
			if err != nil || !wantJSON(cmd) {
				return err
			}
			return printJSON(cmd, map[string]any{"cancelled": args[0]})
		})
}
