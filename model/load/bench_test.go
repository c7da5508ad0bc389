package load_test

import (
	"fmt"
	"testing"

	"github.com/octet-run/octet/kernels/cpu"
	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/checkpoint"
	"github.com/octet-run/octet/model/layers"
	"github.com/octet-run/octet/model/load"
	"github.com/octet-run/octet/model/synth"
)

// BenchmarkLoad loads all ranks of a group, one after the other, from the page cache.
func BenchmarkLoad(b *testing.B) {
	dir := b.TempDir()
	if err := synth.Write(dir, synth.Config{}.Sized(512<<20), nil); err != nil {
		b.Fatal(err)
	}
	c, err := model.ReadConfig(dir)
	if err != nil {
		b.Fatal(err)
	}
	for _, ranks := range []int{1, 8} {
		b.Run(fmt.Sprintf("ranks=%d", ranks), func(b *testing.B) {
			for b.Loop() {
				files, err := checkpoint.Open(dir)
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(files.Bytes())
				for r := range ranks {
					loadRank(b, files, c, model.Shard{Rank: r, Ranks: ranks})
				}
				files.Close()
			}
		})
	}
}

func loadRank(b *testing.B, files *checkpoint.Files, c model.Config, s model.Shard) {
	backend, err := cpu.New(cpu.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer backend.Close()
	o := model.Options{Blocks: 4, MaxRows: 16, MaxPositions: 64}
	if _, _, err := load.Target(files, c, s, o, backend, layers.Alone{Backend: backend, As: s}, checkpoint.LoadConfig{}); err != nil {
		b.Fatal(err)
	}
}
