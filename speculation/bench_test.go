package speculation

import (
	"math/rand/v2"
	"testing"
)

// BenchmarkVerify is acceptance at the vocabulary of Kimi-K2, five nodes deep.
func BenchmarkVerify(b *testing.B) {
	const vocab, nodes = 163840, 6
	rng := rand.New(rand.NewPCG(1, 1))
	rows := make([][]float32, nodes)
	for i := range rows {
		rows[i] = make([]float32, vocab)
		for j := range rows[i] {
			rows[i][j] = float32(rng.NormFloat64() * 3)
		}
	}
	drafts := make([]int32, 0, nodes-1)
	for i := range nodes - 1 {
		drafts = append(drafts, largest(rows[i]))
	}
	for name, p := range map[string]Params{
		"greedy":       {Logprobs: -1},
		"temperature":  {Temperature: 0.01, Logprobs: -1},
		"top-k, top-p": {Temperature: 0.01, TopK: 50, TopP: 0.9, Logprobs: -1},
		"top-p":        {Temperature: 0.01, TopP: 0.9, Logprobs: -1},
		"logprobs":     {Logprobs: 5},
	} {
		b.Run(name, func(b *testing.B) {
			s, err := NewSampler(p, vocab, new(Workspace))
			if err != nil {
				b.Fatal(err)
			}
			tree := NewChain(1, drafts)
			for b.Loop() {
				verdict, err := s.Verify(tree, func(node int) []float32 { return rows[node] })
				if err != nil || len(verdict.Path) != nodes {
					b.Fatal(len(verdict.Path), err)
				}
			}
		})
	}
}

func BenchmarkBuilder(b *testing.B) {
	shape := Shape{TopK: 4, Steps: 5, Nodes: 16}
	row := []Candidate{{1, -0.5}, {2, -1.2}, {3, -2.5}, {4, -3}}
	for b.Loop() {
		builder, err := NewBuilder(shape, 0)
		if err != nil {
			b.Fatal(err)
		}
		rows := [][]Candidate{row}
		for !builder.Done() {
			if err := builder.Expand(rows...); err != nil {
				b.Fatal(err)
			}
			rows = rows[:0]
			for range builder.Beam() {
				rows = append(rows, row)
			}
		}
		builder.Tree()
	}
}

func BenchmarkChoose(b *testing.B) {
	options := append(Options(Eagle3, Shape{TopK: 4, Steps: 5, Nodes: 16}), Options(PromptLookup, Chain(5))...)
	var cost Cost
	for rows := 1; rows <= 16; rows++ {
		cost.Observe(0, rows, rows/4, 10+float64(rows), float64(rows))
		cost.Observe(0, rows, rows/4, 10+float64(rows), float64(rows))
	}
	c := NewController(options, new(Acceptance))
	for b.Loop() {
		c.Observe(c.Choose(&cost, Load{}), 3, 1)
	}
}
