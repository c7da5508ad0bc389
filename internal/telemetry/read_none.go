//go:build !cgo || !cuda

package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"
)

// Run reports that this build has no reporter.
func Run(_ context.Context, out io.Writer, _ time.Duration, _ []string) error {
	err := errors.New("telemetry: this build does not reach the NVIDIA management library")
	return errors.Join(json.NewEncoder(out).Encode(Report{Error: err.Error()}), err)
}
