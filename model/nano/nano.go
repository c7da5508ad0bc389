package nano

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
)

//go:embed pair
var embedded embed.FS

// Prompt is what the pair is shown with when there is no other prompt. It reads best
// at temperature 1: greedy text of so small a model soon loops.
const Prompt = "// WriteString writes s to the buffer.\nfunc (b *Buffer) WriteString(s string) (n int, err error) {\n"

// Files is the embedded pair: target/, draft/, SHA256SUMS and the licence of the
// text it was trained on.
func Files() fs.FS {
	files, err := fs.Sub(embedded, "pair")
	if err != nil {
		panic(err) // the pattern above names the folder
	}
	return files
}

// BenchPrompt is the opening of a function or type that the pair was not trained on.
type BenchPrompt struct {
	Source string  `json:"source"` // file under GOROOT/src
	Text   string  `json:"prompt_text"`
	IDs    []int32 `json:"prompt_ids"` // 64 tokens, the begin token first
}

// BenchPrompts are the prompts that decoding is measured with, in order.
func BenchPrompts() ([]BenchPrompt, error) {
	data, err := fs.ReadFile(Files(), "bench-prompts.json")
	if err != nil {
		return nil, err
	}
	var prompts []BenchPrompt
	if err := json.Unmarshal(data, &prompts); err != nil {
		return nil, fmt.Errorf("embedded pair: bench-prompts.json: %w", err)
	}
	return prompts, nil
}
