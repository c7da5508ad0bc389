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

// RunProcesses starts one process per rank over a new group with slabs of so many
// elements, waits for all, and returns what rank 0 printed. command makes the
// process of one rank, which inherits the group's segment as file descriptor 3. A
// rank that fails ends the others.
func RunProcesses(ctx context.Context, ranks, elements int, command func(ctx context.Context, rank int) *exec.Cmd) ([]byte, error) {
	group, err := transport.Create(transport.Config{Ranks: ranks, MaxRows: 1, MaxWidth: max(elements, 1)})
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
	ends := make(chan end, ranks)
	outputs, complaints := make([]bytes.Buffer, ranks), make([]bytes.Buffer, ranks)
	for r := range ranks {
		p := command(ctx, r)
		p.ExtraFiles = []*os.File{group.File()}
		p.Stdout, p.Stderr = &outputs[r], &complaints[r]
		if err := p.Start(); err != nil {
			ends <- end{r, err}
			continue
		}
		go func() { ends <- end{r, p.Wait()} }()
	}
	var failed error
	for range ranks {
		if e := <-ends; e.err != nil && failed == nil {
			failed = fmt.Errorf("rank %d: %w: %s%s", e.rank, e.err, outputs[e.rank].String(), complaints[e.rank].String())
			group.Abort(e.rank, shm.Died)
		}
	}
	return outputs[0].Bytes(), failed
}
