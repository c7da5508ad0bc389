package synth

import (
	"testing"

	"github.com/octet-run/octet/model"
	"github.com/octet-run/octet/model/checkpoint"
)

var small = Config{Layers: 2, Hidden: 64, Intermediate: 96, Heads: 4, KVHeads: 2, HeadDim: 16, Vocab: 100}

func TestWrittenCheckpointOpens(t *testing.T) {
	dir := t.TempDir()
	if err := Write(dir, small, nil); err != nil {
		t.Fatal(err)
	}
	c, err := model.ReadConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	f, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if c.Layers != 2 || f.Bytes() != small.Bytes() || len(f.Names()) != 3+2*9 {
		t.Errorf("%d layers, %d bytes, %d tensors", c.Layers, f.Bytes(), len(f.Names()))
	}
}

func TestSizedReachesTheSize(t *testing.T) {
	for _, bytes := range []int64{1, 1 << 28, 1 << 30, 2 << 30} {
		c := Config{}.Sized(bytes)
		if c.Bytes() < bytes || c.Layers > 1 && c.Bytes()-bytes > 200<<20 {
			t.Errorf("%d bytes asked, %d given in %d layers", bytes, c.Bytes(), c.Layers)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	c := Config{Layers: 1, Vocab: 4000}
	b.SetBytes(c.Bytes())
	for b.Loop() {
		if err := Write(b.TempDir(), c, nil); err != nil {
			b.Fatal(err)
		}
	}
}
