package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/octet-run/octet/kernels/cuda"
)

// inventory is what octet rank devices prints.
type inventory struct {
	GPUs  []cuda.DeviceInfo `json:"gpus"`
	Error string            `json:"error,omitempty"`
}

// newRankDevices asks the driver for its GPUs, in a process of its own: the one that
// serves holds no device, and a driver that hangs is killed with the process.
func newRankDevices() *cobra.Command {
	return &cobra.Command{
		Use: "devices", Hidden: true, Args: cobra.NoArgs,
		Short: "List the GPUs that ranks can use (started by octet)",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var found inventory
			var err error
			if found.GPUs, err = cuda.Devices(); err != nil {
				found.Error = err.Error()
			}
			return json.NewEncoder(cmd.OutOrStdout()).Encode(found)
		},
	}
}

// inventoryLimit is for the driver's initialisation, which takes seconds on a box of
// eight.
const inventoryLimit = 30 * time.Second

// findGPUs lists the GPUs that ranks can compute on.
func findGPUs() ([]cuda.DeviceInfo, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), inventoryLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe, "rank", "devices")
	cmd.WaitDelay = time.Second
	printed, err := cmd.Output()
	if ctx.Err() != nil {
		return nil, refusedError{fmt.Errorf("--backend cuda: the NVIDIA driver did not answer within %v", inventoryLimit)}
	}
	if err != nil {
		return nil, refusedError{fmt.Errorf("--backend cuda: the process that asks the NVIDIA driver failed: %w", err)}
	}
	gpus, err := parseInventory(printed)
	if err != nil {
		return nil, refusedError{fmt.Errorf("--backend cuda: %s", strings.TrimPrefix(err.Error(), "cuda: "))}
	}
	return gpus, nil
}

func parseInventory(printed []byte) ([]cuda.DeviceInfo, error) {
	var found inventory
	if err := json.Unmarshal(bytes.TrimSpace(printed), &found); err != nil {
		return nil, fmt.Errorf("the list of GPUs cannot be read: %w", err)
	}
	if found.Error != "" {
		return nil, errors.New(found.Error)
	}
	if len(found.GPUs) == 0 {
		return nil, cuda.ErrNoDriver
	}
	for _, g := range found.GPUs {
		if g.Major < cuda.LeastCapability {
			return nil, fmt.Errorf("the kernels need compute capability %d.0, %s at %s has %d.%d", cuda.LeastCapability, g.Name, g.PCI, g.Major, g.Minor)
		}
	}
	return found.GPUs, nil
}

// deviceOf is the GPU of a rank: ranks that outnumber GPUs share them.
func (s *groupSettings) deviceOf(rank int) cuda.DeviceInfo { return s.gpus[rank%len(s.gpus)] }

// addresses are the PCI addresses of the ranks' GPUs, nil on a CPU.
func (s *groupSettings) addresses() []string {
	if len(s.gpus) == 0 {
		return nil
	}
	list := make([]string, s.ranks)
	for r := range list {
		list[r] = s.deviceOf(r).PCI
	}
	return list
}

// backendName is the backend that the ranks really have.
func (s *groupSettings) backendName() string {
	if len(s.gpus) > 0 {
		return "cuda"
	}
	return "cpu"
}

// Of a GPU's memory, what is kept for contexts, kernels and scratch: a tenth, and so
// much a rank.
const deviceReserve = 3 << 30

// deviceBudget is what a KV cache may take on all ranks' GPUs together, beside their
// weights.
func (s *groupSettings) deviceBudget(weights []int64) (int, error) {
	least := int64(-1)
	for r, bytes := range weights {
		sharers := int64((s.ranks - r%len(s.gpus) + len(s.gpus) - 1) / len(s.gpus))
		gpu := s.deviceOf(r)
		left := gpu.MemoryBytes*9/10/sharers - deviceReserve - bytes
		if left <= 0 {
			return 0, refusedError{fmt.Errorf("rank %d's weights take %.1f GB and %s at %s has %.1f GB for %d ranks: use more GPUs", r,
				float64(bytes)/1e9, gpu.Name, gpu.PCI, float64(gpu.MemoryBytes)/1e9, sharers)}
		}
		if least < 0 || left < least {
			least = left
		}
	}
	return int(least) * s.ranks, nil
}
