package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/octet-run/octet/model/synth"
)

func newBenchCheckpoint() *cobra.Command {
	var size string
	cmd := &cobra.Command{
		Use:     "checkpoint DIR",
		Short:   "Write a Llama-shaped checkpoint with random weights, for load and verify benchmarks",
		Example: "  octet bench checkpoint /var/tmp/big --size 2GiB",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			bytes, err := parseBytes(size)
			if err != nil {
				return fmt.Errorf("--size: %w", err)
			}
			c := synth.Config{}.Sized(bytes)
			over := busy(cmd, "writing")
			err = synth.Write(args[0], c, nil)
			over()
			if err != nil {
				return err
			}
			if wantJSON(cmd) {
				return printJSON(cmd, map[string]any{"dir": args[0], "bytes": c.Bytes()})
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %d bytes of weights\n", args[0], c.Bytes())
			return nil
		},
	}
	cmd.Flags().StringVar(&size, "size", "1GiB", "least size of the weights")
	return cmd
}

// units of sizes on the command line.
var units = []struct {
	name  string
	bytes int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"B", 1}}

// byteSize is a flag with a size. Zero is not given.
type byteSize int64

func (b *byteSize) String() string {
	if *b == 0 {
		return ""
	}
	return strconv.FormatInt(int64(*b), 10)
}

func (b *byteSize) Type() string { return "size" }

func (b *byteSize) Set(text string) error {
	n, err := parseBytes(text)
	*b = byteSize(n)
	return err
}

// parseBytes reads 64KiB, 1GiB or a bare number of bytes.
func parseBytes(text string) (int64, error) {
	number, scale := text, int64(1)
	for _, u := range units {
		if rest, found := strings.CutSuffix(text, u.name); found {
			number, scale = rest, u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 1 || n > (1<<50)/scale {
		return 0, usagef("%q is not a size such as 64KiB, 16MiB or 1GiB", text)
	}
	return n * scale, nil
}
