package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/octet-run/octet/actors/ledger"
	"github.com/octet-run/octet/coordinator"
	"github.com/octet-run/octet/coordinator/openai"
)

// serveSettings are where a server listens and how it leaves.
type serveSettings struct {
	socket   string
	listen   string
	http     string
	token    string
	insecure bool
	grace    time.Duration
	verbose  bool

	tokenLog     string
	tokenLogSync string
	allowFaults  bool
}

func newServe() *cobra.Command {
	var group groupSettings
	var s serveSettings
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Start a group and serve it over gRPC and the OpenAI HTTP interface",
		Example: "  octet serve --model llama-3-8b --draft llama-3-8b-eagle3\n" +
			"  OCTET_TOKEN=secret octet serve --model llama-3-8b --http 0.0.0.0:8000",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return serve(cmd, &group, &s) },
	}
	group.register(cmd.Flags())
	flags := cmd.Flags()
	registerSocket(flags, &s.socket)
	flags.StringVar(&s.listen, "listen", "", "serve gRPC on this TCP address too, HOST:PORT")
	flags.StringVar(&s.http, "http", "127.0.0.1:8000", "address of the OpenAI HTTP interface, off for none")
	flags.StringVar(&s.token, "token", "", "bearer token that TCP clients must bring; better given as OCTET_TOKEN")
	flags.BoolVar(&s.insecure, "insecure", false, "listen beyond this machine without a token")
	flags.DurationVar(&s.grace, "grace", 30*time.Second, "how long requests may take to finish when the server is told to leave")
	flags.BoolVar(&s.verbose, "verbose", false, "log what happens to the group")
	flags.StringVar(&s.tokenLog, "token-log", "", "file that keeps requests and their tokens: a server that is started again goes on with them")
	flags.StringVar(&s.tokenLogSync, "token-log-sync", "200ms", "when the token log is flushed to the disk: always (before tokens are delivered), never, or every so often")
	flags.BoolVar(&s.allowFaults, "allow-faults", false, "let octet fault arm break things on purpose")
	return cmd
}

func serve(cmd *cobra.Command, settings *groupSettings, s *serveSettings) error {
	if err := settings.validate(); err != nil {
		return err
	}
	if s.grace < 0 {
		return usagef("--grace must not be negative, got %v", s.grace)
	}
	listeners, err := s.open()
	if err != nil {
		return err
	}
	defer listeners.close()
	lastly(cmd.Context(), listeners.close)
	log := zap.NewNop()
	if s.verbose {
		if log, err = zap.NewProduction(); err != nil {
			return err
		}
	}
	tokens, err := s.openLog()
	if err != nil {
		return err
	}
	if tokens != nil {
		defer tokens.Close()
	}
	gpus, err := watchGPUs(settings.addresses())
	if err != nil {
		return err
	}
	defer gpus.close()
	metrics := openai.NewMetrics(settings.modelName(), gpus.collectors()...)
	options := startOptions{status: cmd.ErrOrStderr(), log: log, observer: metrics}
	if tokens != nil {
		options.tokens = tokens
	}
	if s.allowFaults {
		if options.faults, err = ledger.NewBook(settings.ranks, 0); err != nil {
			return err
		}
		defer options.faults.Close()
		options.observer = counted{Observer: metrics, book: options.faults}
	}
	r, err := startGroup(cmd.Context(), settings, options)
	if err != nil {
		return interrupted(cmd.Context(), err)
	}
	defer r.stop()
	host := r.host()
	host.Status = gpus.withStatus(host.Status)
	if s.allowFaults {
		addFaults(&host, options.faults, settings.ranks)
		injection := startInjection(options.faults, r.group)
		defer injection.close()
	}

	server := coordinator.NewServer(r.coordinator, host, s.token)
	failed := make(chan error, 3)
	var serving sync.WaitGroup
	httpContext, stopHTTP := context.WithCancel(context.Background())
	defer stopHTTP()
	for _, l := range listeners.grpc {
		serving.Go(func() { failed <- server.Serve(l) })
	}
	if listeners.http != nil {
		handler := openai.NewHandler(openai.Config{Coordinator: r.coordinator, Metrics: metrics, Token: s.token, Started: time.Now()})
		serving.Go(func() { failed <- openai.Serve(httpContext, listeners.http, handler, s.grace) })
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "octet: serving %s on %s, loaded in %.2f s; %s\n",
		settings.modelName(), countOf(settings.ranks, "rank"), r.loaded.Seconds(), s.addresses(listeners))

	select {
	case <-cmd.Context().Done():
		err = nil
		fmt.Fprintf(cmd.ErrOrStderr(), "octet: draining, at most %v\n", s.grace)
	case <-r.group.Done():
		err = fmt.Errorf("the group is gone: %w", r.group.Err())
	case err = <-failed:
	}
	drain, cancel := context.WithTimeout(context.Background(), s.grace)
	defer cancel()
	if err == nil {
		r.coordinator.Drain(drain)
	}
	stopHTTP()
	server.Stop(drain)
	serving.Wait()
	if err == nil && interruptedByUser(cmd.Context()) {
		return errInterrupted
	}
	return err
}

// keptRequests is how many ended requests the token log keeps for clients that
// come back.
const keptRequests = 1024

// openLog opens the token log, nil if there is to be none.
func (s *serveSettings) openLog() (*coordinator.DiskLog, error) {
	when, err := coordinator.ParseSync(s.tokenLogSync)
	if err != nil {
		return nil, usageError{fmt.Errorf("--token-log-sync: %w", err)}
	}
	if s.tokenLog == "" {
		return nil, nil
	}
	return coordinator.OpenDiskLog(s.tokenLog, keptRequests, when)
}

// listeners are the open sockets of a server. They are opened before anything is
// loaded, so that a taken address costs no time.
type listeners struct {
	grpc []net.Listener
	http net.Listener
}

func (s *serveSettings) open() (*listeners, error) {
	l := &listeners{}
	add := func(listener net.Listener, err error) error {
		if err == nil {
			l.grpc = append(l.grpc, listener)
		}
		return err
	}
	err := add(coordinator.ListenUnix(s.socket))
	if err == nil && s.listen != "" {
		err = add(coordinator.ListenTCP(s.listen, s.token, s.insecure))
	}
	if err == nil && s.http != "off" {
		l.http, err = coordinator.ListenTCP(s.http, s.token, s.insecure)
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *listeners) close() {
	for _, listener := range l.grpc {
		_ = listener.Close()
	}
	if l.http != nil {
		_ = l.http.Close()
	}
}

// addresses lists where the server answers, for people.
func (s *serveSettings) addresses(l *listeners) string {
	text := "gRPC on " + s.socket
	for _, listener := range l.grpc[1:] {
		text += " and " + listener.Addr().String()
	}
	if l.http != nil {
		text += ", HTTP on http://" + l.http.Addr().String()
	}
	return text
}

// defaultSocket is where a server listens and clients look: the user's runtime
// folder, or a name of the user's own in the temporary one.
func defaultSocket() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "octet.sock")
	}
	return filepath.Join(os.TempDir(), "octet-"+strconv.Itoa(os.Getuid())+".sock")
}

// interruptedByUser tells Ctrl-C from an orderly request to leave.
func interruptedByUser(ctx context.Context) bool {
	var s signalError
	return errors.As(context.Cause(ctx), &s) && s.signal == unix.SIGINT
}
