package checkpoint

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// headers are texts on which the scanner decides (true) or leaves the decision to
// the general reader.
var headers = []struct {
	text    string
	decides bool
}{
	{`{}`, true},
	{` { } `, true},
	{`{"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}}`, true},
	{"{\n \"a\" : {\"data_offsets\" : [ 0 , 8 ],\t\"shape\":[],\"dtype\":\"F32\"} } \n", true},
	{`{"__metadata__":{"format":"pt","n":"1"},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[3],"data_offsets":[4,7]}}   `, true},
	{`{"__metadata__":{}}`, true},
	{`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, true},
	{`{"\u0061":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, false},
	{`{"ä":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, false},
	{`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1}}`, false},
	{`{"a":{"DTYPE":"F32","shape":[1],"data_offsets":[0,4]}}`, false},
	{`{"a":{"dtype":"F32","shape":[01],"data_offsets":[0,4]}}`, false},
	{`{"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}}`, false},
	{`{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}`, false},
	{`{"a":{"dtype":"F32","shape":[12345678901234567890],"data_offsets":[0,4]}}`, false},
	{`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},}`, false},
	{`{"a":{"dtype":"F32","shape":[1,],"data_offsets":[0,4]}}`, false},
	{`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}}`, false},
	{`{"a":{"dtype":"F32","shape":[1]}}`, false},
	{`{"a":{"dtype":"F32","dtype":"U8","shape":[1],"data_offsets":[0,4]}}`, false},
	{`{"__metadata__":{"n":1}}`, false},
	{`{"a"`, false},
	{`{}{}`, false},
	{``, false},
}

func TestScannerDecidesOnWhatWritersWrite(t *testing.T) {
	for _, h := range headers {
		if entries, ok := scanHeader([]byte(h.text)); ok != h.decides {
			t.Errorf("%s: the scanner says %v, %v", h.text, entries, ok)
		}
	}
}

// FuzzScan compares the scanner with the general reader: what the one accepts, the
// other reads in the same way.
func FuzzScan(f *testing.F) {
	for _, h := range headers {
		f.Add([]byte(h.text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fast, ok := scanHeader(data)
		if !ok {
			return
		}
		slow, err := readHeader("fuzz", data)
		if err != nil {
			t.Fatalf("%q: scanned, and the reader says %v", data, err)
		}
		if len(fast) != 0 || len(slow) != 0 {
			if !reflect.DeepEqual(fast, slow) {
				t.Fatalf("%q: scanned as %v, read as %v", data, fast, slow)
			}
		}
	})
}

// BenchmarkHeader reads the header of a model with 100,000 tensors.
func BenchmarkHeader(b *testing.B) {
	var text strings.Builder
	text.WriteByte('{')
	for i := range 100_000 {
		if i > 0 {
			text.WriteByte(',')
		}
		fmt.Fprintf(&text, `"model.layers.%d.mlp.experts.%d.gate_proj.weight_packed":{"dtype":"U8","shape":[2,4],"data_offsets":[%d,%d]}`,
			i/1000, i%1000, 8*i, 8*i+8)
	}
	text.WriteByte('}')
	header := []byte(text.String())
	b.Run("scanner", func(b *testing.B) {
		b.SetBytes(int64(len(header)))
		for b.Loop() {
			if _, ok := scanHeader(header); !ok {
				b.Fatal("not decided")
			}
		}
	})
	b.Run("reader", func(b *testing.B) {
		b.SetBytes(int64(len(header)))
		for b.Loop() {
			if _, err := readHeader("bench", header); err != nil {
				b.Fatal(err)
			}
		}
	})
}
