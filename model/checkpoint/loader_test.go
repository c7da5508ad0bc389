package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/octet-run/octet/kernels"
	"golang.org/x/sys/unix"
)

// stored is one tensor of a file made by a test. Its bytes count up.
type stored struct {
	name, dtype string
	shape       []int
	size        int // bytes of an element
}

// build is a safetensors file of the entries; pad makes the header longer.
func build(entries []stored, pad int) (file []byte, payload map[string][]byte) {
	header, body := map[string]any{}, []byte(nil)
	payload = map[string][]byte{}
	for i, e := range entries {
		n := e.size
		for _, d := range e.shape {
			n *= d
		}
		data := make([]byte, n)
		for j := range data {
			data[j] = byte(i*31 + j*7 + j>>8)
		}
		header[e.name] = map[string]any{"dtype": e.dtype, "shape": e.shape, "data_offsets": []int{len(body), len(body) + n}}
		body = append(body, data...)
		payload[e.name] = data
	}
	text, _ := json.Marshal(header)
	text = append(text, bytes.Repeat([]byte(" "), pad)...)
	return append(image(string(text), 0), body...), payload
}

func writeFile(t *testing.T, dir, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, dir string) *Files {
	t.Helper()
	f, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func flatten(t kernels.Tensor) []byte {
	var out []byte
	for r := range t.Rows {
		out = append(out, t.ByteRow(r)...)
	}
	return out
}

// TestSlicesEqualTheFile cuts tensors by rows and columns at every rank count
// and joins the parts again, with the payload at every alignment.
func TestSlicesEqualTheFile(t *testing.T) {
	entries := []stored{{"m", "BF16", []int{37, 53}, 2}, {"wide", "F32", []int{5, 1 << 14}, 4}, {"v", "BF16", []int{37}, 2}}
	for pad := range 4 {
		dir := t.TempDir()
		file, payload := build(entries, pad)
		writeFile(t, dir, singleName, file)
		f := open(t, dir)
		for ranks := 1; ranks <= 8; ranks++ {
			for _, e := range entries[:2] {
				rows, cols := e.shape[0], e.shape[1]
				var byRows []byte
				byCols := make([][]byte, rows)
				for r := range ranks {
					l := f.NewLoader(LoadConfig{})
					part := l.Rows(e.name, rows, cols, rows*r/ranks, rows*(r+1)/ranks)
					byRows = append(byRows, flatten(part)...)
					part = l.Columns(e.name, rows, cols, cols*r/ranks, cols*(r+1)/ranks)
					for i := range rows {
						byCols[i] = append(byCols[i], part.ByteRow(i)...)
					}
					if _, err := l.Finish(func(string) bool { return true }); err != nil {
						t.Fatal(err)
					}
				}
				if !bytes.Equal(byRows, payload[e.name]) || !bytes.Equal(bytes.Join(byCols, nil), payload[e.name]) {
					t.Fatalf("%s over %d ranks, padding %d: parts do not make the whole", e.name, ranks, pad)
				}
			}
		}
	}
}

func TestRowsStayMappedAndColumnsAreCopied(t *testing.T) {
	dir := t.TempDir()
	entries := []stored{{"a", "F32", []int{8, 16}, 4}, {"b", "F32", []int{8, 16}, 4}}
	file, _ := build(entries, 0)
	aligned, _ := build(entries, (4-len(file)%4)%4)
	writeFile(t, dir, singleName, aligned)
	l := open(t, dir).NewLoader(LoadConfig{})
	l.Rows("a", 8, 16, 2, 4)
	l.Columns("b", 8, 16, 4, 8)
	plan, err := l.Finish(func(string) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%v %v %d", plan.Slices[0].Mapped, plan.Slices[1].Mapped, plan.Bytes())
	if got != "true false 256" {
		t.Errorf("mapped, mapped, bytes: %s", got)
	}
	var table strings.Builder
	if err := plan.Fprint(&table); err != nil || strings.Count(table.String(), "\n") != 2 {
		t.Errorf("table %q, error %v", table.String(), err)
	}
}

func TestTheFirstProblemIsReportedAndAllAreCounted(t *testing.T) {
	dir := t.TempDir()
	file, _ := build([]stored{{"a", "BF16", []int{4, 4}, 2}, {"b", "I8", []int{4, 4}, 1}, {"extra", "F32", []int{1}, 4}}, 0)
	writeFile(t, dir, singleName, file)
	good := func(l *Loader) { l.Skip("a", "b", "extra") }
	cases := []struct {
		take func(*Loader)
		want string
	}{
		{func(l *Loader) { l.Rows("a", 8, 4, 0, 4) }, "tensor a: expected shape [8, 4], found [4, 4]"},
		{func(l *Loader) { l.Rows("b", 4, 4, 0, 4) }, "tensor b: expected type [bf16 f16 f32], found I8"},
		{func(l *Loader) { l.TakeVector("c", 3, 0, 3, Floats()...) }, "tensor c: expected shape [3], found no such tensor"},
		{func(l *Loader) { delete(l.used, "extra") }, "tensor extra: expected no tensor of that name in this architecture, found F32 [1]"},
		{
			func(l *Loader) { l.Rows("b", 8, 4, 0, 4); l.TakeVector("c", 3, 0, 3, Floats()...) },
			"tensor b: expected shape [8, 4], found [4, 4] (the first of 2 problems)",
		},
	}
	for _, dry := range []bool{true, false} {
		for _, c := range cases {
			l := open(t, dir).NewLoader(LoadConfig{Dry: dry})
			good(l)
			c.take(l)
			_, err := l.Finish(func(string) bool { return false })
			var format *FormatError
			if !errors.As(err, &format) || !strings.HasSuffix(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("dry=%v: error is %v, not %q", dry, err, c.want)
			}
		}
	}
}

func TestFilesThatAreNoneAreNamedAtOnce(t *testing.T) {
	index := []byte(`{"weight_map":{"a":"model-1.safetensors"}}`)
	cases := []struct {
		name, want string
		put        func(path string) error
	}{
		{"missing", "tensor a: expected a safetensors file, found no such file", func(string) error { return nil }},
		{"pipe", "found something that is not a file", func(path string) error { return unix.Mkfifo(path, 0o600) }},
		{"folder", "found something that is not a file", func(path string) error { return os.Mkdir(path, 0o700) }},
		{"empty", "found 0 bytes", func(path string) error { return os.WriteFile(path, nil, 0o600) }},
	}
	for _, c := range cases {
		dir := t.TempDir()
		writeFile(t, dir, indexName, index)
		path := filepath.Join(dir, "model-1.safetensors")
		if err := c.put(path); err != nil {
			t.Fatal(err)
		}
		_, err := Open(dir)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error is %v", c.name, err)
		}
	}
}

func TestDryRunTakesNoMemory(t *testing.T) {
	dir := t.TempDir()
	file, _ := build([]stored{{"a", "BF16", []int{4, 4}, 2}}, 0)
	writeFile(t, dir, singleName, file)
	l := open(t, dir).NewLoader(LoadConfig{Dry: true})
	part := l.Columns("a", 4, 4, 1, 3)
	if part.Host != nil || part.Rows != 4 || part.Cols != 2 || len(l.copies.chunks) != 0 {
		t.Errorf("dry slice is %+v", part)
	}
}

func TestUploadedCopiesAreReused(t *testing.T) {
	dir := t.TempDir()
	file, payload := build([]stored{{"a", "BF16", []int{4, 4}, 2}}, 0)
	writeFile(t, dir, singleName, file)
	var uploaded [][]byte
	l := open(t, dir).NewLoader(LoadConfig{Upload: func(h kernels.Tensor) (kernels.Tensor, error) {
		uploaded = append(uploaded, flatten(h))
		h.Host, h.Device = nil, 1
		return h, nil
	}})
	l.Columns("a", 4, 4, 0, 2)
	used := l.copies.used
	l.Columns("a", 4, 4, 0, 2)
	if used != 0 || l.copies.used != 0 || !slices.Equal(uploaded[0], uploaded[1]) || uploaded[0][0] != payload["a"][0] {
		t.Errorf("after uploads %d bytes of host copies are in use", l.copies.used)
	}
}

func TestIndexDecidesWhereTensorsAre(t *testing.T) {
	dir := t.TempDir()
	one, payload := build([]stored{{"a", "U8", []int{2}, 1}, {"unlisted", "U8", []int{1}, 1}}, 0)
	two, _ := build([]stored{{"b", "U8", []int{3}, 1}}, 0)
	writeFile(t, dir, "one.safetensors", one)
	writeFile(t, dir, "two.safetensors", two)
	writeFile(t, dir, indexName, []byte(`{"metadata":{},"weight_map":{"a":"one.safetensors","b":"two.safetensors"}}`))
	f := open(t, dir)
	if got := strings.Join(f.Names(), " "); got != "a b" || f.Bytes() != 5 {
		t.Errorf("names %q, %d bytes", got, f.Bytes())
	}
	if got := f.NewLoader(LoadConfig{}).TakeVector("a", 2, 0, 2, kernels.U8); !bytes.Equal(flatten(got), payload["a"]) {
		t.Errorf("a is %v", flatten(got))
	}
	l := f.NewLoader(LoadConfig{})
	l.TakeVector("unlisted", 1, 0, 1, kernels.U8)
	_, err := l.Finish(func(string) bool { return true })
	if err == nil || !strings.Contains(err.Error(), "tensor unlisted: expected an entry for it, found none, though it is in ") {
		t.Errorf("a tensor that the index leaves out: %v", err)
	}
}

func TestFoldersThatAreRefused(t *testing.T) {
	good, _ := build([]stored{{"a", "U8", []int{2}, 1}}, 0)
	two, _ := build([]stored{{"a", "U8", []int{2}, 1}, {"b", "U8", []int{2}, 1}}, 0)
	other, _ := build([]stored{{"0", "U8", []int{2}, 1}, {"a", "U8", []int{2}, 1}}, 0)
	last, _ := build([]stored{{"c", "U8", []int{2}, 1}}, 0)
	cases := []struct {
		name, mention string
		files         map[string][]byte
	}{
		{"empty", "model.safetensors", nil},
		{"pickle", "unpickling runs code", map[string][]byte{"pytorch_model.bin": {1}}},
		{"shards without index", "no index", map[string][]byte{"a.safetensors": good, "b.safetensors": good}},
		{"index names a missing file", "no such file", map[string][]byte{indexName: []byte(`{"weight_map":{"a":"x.safetensors"}}`)}},
		{"index leaves the folder", "beside the index", map[string][]byte{indexName: []byte(`{"weight_map":{"a":"../x.safetensors"}}`)}},
		{"index names a missing tensor", "no such tensor there", map[string][]byte{
			indexName: []byte(`{"weight_map":{"z":"x.safetensors"}}`), "x.safetensors": good,
		}},
		{"index is not JSON", "weight_map", map[string][]byte{indexName: []byte("hello")}},
		{"index is a list", "expected a JSON object with weight_map, found an array", map[string][]byte{indexName: []byte("[1]")}},
		{"index is empty", "expected the tensors in weight_map, found none", map[string][]byte{indexName: []byte("{}")}},
		{"index names a number", "expected the name of a file for every tensor in weight_map, found a number", map[string][]byte{
			indexName: []byte(`{"weight_map":{"a":7}}`),
		}},
		{"index names a tensor twice", "tensor b: expected one entry in weight_map, found two", map[string][]byte{
			indexName: []byte(`{"weight_map":{"a:\":":"x.safetensors","b":"x.safetensors","b":"y.safetensors"}}`),
		}},
		{"a tensor in two files", "y.safetensors: tensor a: expected it in one file, found it in ", map[string][]byte{
			indexName:       []byte(`{"weight_map":{"a":"x.safetensors","b":"y.safetensors"}}`),
			"x.safetensors": good, "y.safetensors": two,
		}},
		{"a tensor in another file than the index says", "tensor a: expected it in y.safetensors, found no such tensor there", map[string][]byte{
			indexName:       []byte(`{"weight_map":{"0":"x.safetensors","a":"y.safetensors"}}`),
			"x.safetensors": other, "y.safetensors": last,
		}},
		{"index of a pickle", "unpickling runs code", map[string][]byte{"pytorch_model.bin.index.json": []byte("{}")}},
		{"another format", "found model.gguf alone", map[string][]byte{"model.gguf": {1}}},
		{"pointer of Git LFS", "git lfs pull", map[string][]byte{singleName: []byte("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")}},
		{"truncated", "truncated", map[string][]byte{singleName: good[:len(good)-1]}},
		{"empty file", "0 bytes", map[string][]byte{singleName: {}}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, data := range c.files {
				writeFile(t, dir, name, data)
			}
			_, err := Open(dir)
			if err == nil || !strings.Contains(err.Error(), c.mention) {
				t.Errorf("error %v does not mention %q", err, c.mention)
			}
		})
	}
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"weight_map":{"a":"one.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{"a":"../one.safetensors"}}`))
	f.Add([]byte(`{"weight_map":null}`))
	dir := f.TempDir()
	one, _ := build([]stored{{"a", "U8", []int{2}, 1}}, 0)
	if err := os.WriteFile(filepath.Join(dir, "one.safetensors"), one, 0o644); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, index []byte) {
		if err := os.WriteFile(filepath.Join(dir, indexName), index, 0o644); err != nil {
			t.Fatal(err)
		}
		files, err := Open(dir)
		if err != nil {
			return
		}
		if names := files.Names(); len(names) > 1 || len(names) == 1 && names[0] != "a" {
			t.Errorf("tensors %v came from nowhere", names)
		}
		if err := files.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestSyntheticWeightsAreTameAndComplete(t *testing.T) {
	f := Synthetic(1)
	defer f.Close()
	l := f.NewLoader(LoadConfig{})
	w := l.Take(Slice{Tensor: "x.weight", Rows: 3, Cols: 256, Axis: Whole}, kernels.F32)
	for r := range w.Rows {
		for _, v := range w.F32Row(r) {
			if v*v < 1.0/1024 || v*v > 1.0/60 {
				t.Fatalf("weight %g of a sum of 256", v)
			}
		}
	}
	if norm := l.TakeVector("norm.weight", 4, 0, 4, Floats()...); norm.U16Row(0)[3] != 0x3F80 {
		t.Errorf("norm is %x", norm.U16Row(0))
	}
	if _, err := l.Finish(func(string) bool { return false }); err != nil {
		t.Error(err)
	}
}
