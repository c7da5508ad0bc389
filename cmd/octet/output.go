package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"github.com/spf13/cobra"
)

// output is standard output. It remembers the first write that failed, so that a command
// whose answer was lost, on a disk that is full say, does not end as if it were there.
type output struct {
	file *os.File
	mu   sync.Mutex
	err  error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.file.Write(p)
	if err != nil {
		err = fmt.Errorf("cannot write the output: %w", err)
		o.mu.Lock()
		o.err = cmp.Or(o.err, err)
		o.mu.Unlock()
	}
	return n, err
}

func wantJSON(cmd *cobra.Command) bool {
	json, _ := cmd.Flags().GetBool("json")
	return json
}

// countOf is a number with its noun: 1 rank, 8 ranks.
func countOf(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func printJSON(cmd *cobra.Command, v any) error {
	encoder := json.NewEncoder(cmd.OutOrStdout())
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}
