package llama_test

import (
	"fmt"
	"testing"

	"github.com/octet-run/octet/kernels"
	"github.com/octet-run/octet/kernels/cpu"
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/checkpoint"
	"github.com/octet-run/octet/model/kvcache"
	"github.com/octet-run/octet/model/layers"
	"github.com/octet-run/octet/model/load"
)

// BenchmarkPass is one rank's verify pass over weights that no cache holds.
func BenchmarkPass(b *testing.B) {
	const config = `{"architectures":["LlamaForCausalLM"],"hidden_size":2048,"intermediate_size":5632,"num_hidden_layers":8,
		"num_attention_heads":16,"num_key_value_heads":4,"vocab_size":32000,"rms_norm_eps":1e-5}`
	fields, err := model.ParseFields("config.json", []byte(config))
	if err != nil {
		b.Fatal(err)
	}
	c, err := model.ParseConfig(fields)
	if err != nil {
		b.Fatal(err)
	}
	backend, err := cpu.New(cpu.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer backend.Close()
	files := checkpoint.Synthetic(1)
	defer files.Close()
	o := model.Options{Blocks: 16, MaxRows: 64, MaxPositions: 256}
	m, _, err := load.Target(files, c, model.Shard{Rank: 0, Ranks: 1}, o, backend, layers.Alone{Backend: backend}, checkpoint.LoadConfig{})
	if err != nil {
		b.Fatal(err)
	}
	for _, rows := range []int{1, 6, 16} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			var batch kernels.Batch
			sequence := kvcache.New(16).NewSequence()
			if err := sequence.Append(&batch, make([]int32, rows)); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(m.PassBytes()))
			b.ReportAllocs()
			for b.Loop() {
				m.Logits(m.Forward(&batch).Hidden, nil)
				if err := backend.Sync(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
