package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/octet-run/octet/coordinator"
	"github.com/octet-run/octet/internal/version"
	"github.com/octet-run/octet/speculation"
)

// heapGrowth lets a process start with few collections, a rank with none. Weights and
// caches are outside the Go heap, which holds 3 MiB in a rank and some 15 in the
// supervisor and hardly changes: the first collection comes at 12 MiB instead of 4.
const heapGrowth = 300

func main() {
	// A thread that waits for a round or for other ranks keeps its scheduling slot
	// through the system call. One more lets the rest of the process run meanwhile:
	// where a rank is bound to a single processor that is 0.1 ms against 20 for a
	// round that meets a collection.
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
	debug.SetGCPercent(heapGrowth)
	ctx, stop := signalContext()
	defer stop()
	root, out := newRoot(), &output{file: os.Stdout}
	root.SetOut(out)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = out.err
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "octet:", err)
	}
	code := exitCode(err)
	if code != 0 {
		stop()
		os.Exit(code)
	}
}

// newRoot builds the whole command tree. Nothing is registered elsewhere.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "octet",
		Short: "Run large models on all the GPUs of one box, one process per GPU, with speculation that pays",
		Long: `Octet runs one large language model on all the GPUs of one box, one process per GPU, or on the processors of a
laptop. Without --model it runs a small model that is part of the program.`,
		Example: "  octet generate 'func reverse('            # eight ranks, the embedded model\n" +
			"  octet generate --model DIR --draft DIR 'Once upon a time'\n" +
			"  octet serve                               # a server; octet status, in another terminal, says how it is\n" +
			"  octet check                               # is this machine fit for it?",
		Version:       version.String(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.PersistentFlags().String("config", "", "YAML file with settings named like the flags")
	root.PersistentFlags().Bool("json", false, "print one JSON document for machines")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		_, err := loadSettings(cmd)
		return err
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError{flagError(cmd, err)} })
	root.SetHelpCommand(newHelp())
	root.AddCommand(
		newGenerate(), newLogits(), newTokenize(), newDetokenize(), newSimulate(), newTopo(),
		newServe(), newStatus(), newTop(), newPs(), newCancel(), newDrain(), newStop(), newRestartRank(),
		newBench(), newFault(), newProfile(), newTune(), newCheck(), newConfig(), newRank(),
	)
	usageArgs(root)
	eachCommand(root, func(cmd *cobra.Command) {
		if cmd.Long != "" && cmd != root && !strings.HasPrefix(cmd.Long, cmd.Short) { // help shows but one of the two
			cmd.Long = cmd.Short + ".\n\n" + cmd.Long
		}
	})
	return root
}

// The exit codes that scripts rely on.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNotReady    = 3
	exitInterrupted = 130
)

// usageError is a mistake on the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// refusedError is a request that this group, box or server will not take:
// not ready, or a requirement that cannot be met.
type refusedError struct{ error }

func (e refusedError) Unwrap() error { return e.error }

// exitError is an error with an exit code of its own.
type exitError struct {
	error
	code int
}

func (e exitError) Unwrap() error { return e.error }

// errInterrupted ends a command that Ctrl-C or SIGTERM stopped.
var errInterrupted = errors.New("interrupted")

func exitCode(err error) int {
	var usage usageError
	var refused refusedError
	var own exitError
	var request *coordinator.RequestError
	var param *speculation.ParamError
	var address *coordinator.AddressError
	var taken *coordinator.RefusedError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &own):
		return own.code
	case errors.Is(err, errInterrupted), errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &usage), errors.As(err, &request), errors.As(err, &param), errors.As(err, &address):
		return exitUsage
	case errors.As(err, &refused), errors.As(err, &taken):
		return exitNotReady
	default:
		return exitFailed
	}
}
