package collectives

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/octet-run/octet/collectives/transport"
	"github.com/octet-run/octet/internal/shm"
)

// RankCommand makes the process of one rank, which inherits its group's segment as
// file descriptor 3. Its standard input is a pipe that ends with the process that
// started it, for the rank to end as well.
type RankCommand func(ctx context.Context, rank int) *exec.Cmd

// RunProcesses starts one process per rank over a new group with slabs of so many
// elements, on huge pages or not, waits for all, and returns what rank 0 printed. A
// rank that fails ends the others.
func RunProcesses(ctx context.Context, ranks, elements int, hugePages bool, command RankCommand) ([]byte, error) {
	outputs, err := launch{
		config:  transport.Config{Ranks: ranks, MaxRows: 1, MaxWidth: max(elements, 1), HugePages: hugePages},
		command: command,
	}.run(ctx)
	if len(outputs) == 0 {
		return nil, err
	}
	return outputs[0].Bytes(), err
}

// launch is one group of rank processes, from their start to their end.
type launch struct {
	config  transport.Config
	command RankCommand
	// started, if set, is told of every process.
	started func(rank int, p *os.Process)
	// ended, if set, is told how every process ended and says whether that is an
	// error. Without it a process that fails is.
	ended func(g *transport.Group, rank int, err error) error
}

// run returns what the ranks printed, and the first error.
func (l launch) run(ctx context.Context) ([]bytes.Buffer, error) {
	group, err := transport.Create(l.config)
	if err != nil {
		return nil, err
	}
	defer group.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	type end struct {
		rank int
		err  error
	}
	ranks := l.config.Ranks
	ends := make(chan end, ranks)
	outputs, complaints := make([]bytes.Buffer, ranks), make([]bytes.Buffer, ranks)
	for r := range ranks {
		p := l.command(ctx, r)
		p.ExtraFiles = []*os.File{group.File()}
		p.Stdout, p.Stderr = &outputs[r], &complaints[r]
		_, err := p.StdinPipe() // open until the rank is waited for
		if err == nil {
			err = p.Start()
		}
		if err != nil {
			ends <- end{r, err}
			continue
		}
		if l.started != nil {
			l.started(r, p.Process)
		}
		go func() { ends <- end{r, p.Wait()} }()
	}
	var failed error
	for range ranks {
		e := <-ends
		if l.ended != nil {
			e.err = l.ended(group, e.rank, e.err)
		}
		if e.err != nil && failed == nil {
			failed = fmt.Errorf("rank %d: %w: %s%s", e.rank, e.err, outputs[e.rank].String(), complaints[e.rank].String())
			group.Abort(e.rank, shm.Died)
		}
	}
	return outputs, failed
}
