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

	processes := make([]*exec.Cmd, ranks)
	outputs, complaints := make([]bytes.Buffer, ranks), make([]bytes.Buffer, ranks)
	for r := range processes {
		p := command(ctx, r)
		p.ExtraFiles = []*os.File{group.File()}
		p.Stdout, p.Stderr = &outputs[r], &complaints[r]
		if err := p.Start(); err != nil {
			cancel()
			for _, started := range processes[:r] {
				_ = started.Wait()
			}
			return nil, fmt.Errorf("start rank %d: %w", r, err)
		}
		processes[r] = p
	}
	var failed error
	for r, p := range processes {
		if err := p.Wait(); err != nil && failed == nil {
			failed = fmt.Errorf("rank %d: %w: %s%s", r, err, outputs[r].String(), complaints[r].String())
			group.Abort(r, shm.Died)
		}
	}
	return outputs[0].Bytes(), failed
}
