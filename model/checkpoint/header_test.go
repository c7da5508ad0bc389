package checkpoint

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// image is a safetensors file with the given header and payload size.
func image(header string, payload int) []byte {
	data := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	data = append(data, header...)
	return append(data, make([]byte, payload)...)
}

func TestHeaderProblemsAreNamed(t *testing.T) {
	cases := []struct {
		name    string
		data    []byte
		mention string // what the sentence must say
	}{
		{"empty", nil, "a safetensors header"},
		{"header longer than the file", image("{}", 0)[:9], "a header within the file's 9 bytes"},
		{"absurd header length", binary.LittleEndian.AppendUint64(nil, 1<<63), "9223372036854775808 bytes"},
		{"not json", image("hello", 0), "a JSON header"},
		{"two values", image("{}{}", 0), "more than one JSON value"},
		{"trailing bytes", image("{}", 5), "found 5 bytes"},
		{"no offsets", image(`{"a":{"dtype":"F32","shape":[1]}}`, 4), "tensor a"},
		{"unknown dtype", image(`{"a":{"dtype":"Q9","shape":[1],"data_offsets":[0,4]}}`, 4), `found "Q9"`},
		{"size against shape", image(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, 4), "expected 8 bytes for F32 [2], found 4 bytes"},
		{"overflowing shape", image(`{"a":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,0]}}`, 0), "tensor a"},
		{"negative shape", image(`{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}`, 4), "tensor a"},
		{"reversed offsets", image(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}`, 4), "data_offsets in order"},
		{"truncated payload", image(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 4), "truncated"},
		{
			"overlap", image(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8),
			"tensor b: expected data from byte 8",
		},
		{"hole", image(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8), "tensor a: expected data from byte 0"},
		{
			"duplicate", image(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8),
			"tensor a: expected one entry, found two",
		},
		{"too many dimensions", image(`{"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}}`, 1), "at most 8 dimensions"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := OpenBytes("x.safetensors", c.data)
			var format *FormatError
			if !errors.As(err, &format) {
				t.Fatalf("error is %v, not a FormatError", err)
			}
			if !strings.Contains(err.Error(), "x.safetensors") || !strings.Contains(err.Error(), c.mention) {
				t.Errorf("%q does not mention %q", err, c.mention)
			}
		})
	}
}

func TestHeaderOfAGoodFile(t *testing.T) {
	f, err := OpenBytes("x", image(`{"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},`+
		`"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"e":{"dtype":"F32","shape":[0,7],"data_offsets":[4,4]}}   `, 16))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := strings.Join(f.Names(), " "); got != "a b e" {
		t.Errorf("names are %q", got)
	}
}

func FuzzHeader(f *testing.F) {
	f.Add(image(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4))
	f.Add(image(`{"__metadata__":{"x":"y"},"b":{"dtype":"F4","shape":[2,1],"data_offsets":[0,1]}}`, 1))
	f.Add(binary.LittleEndian.AppendUint64(nil, 1<<40))
	f.Fuzz(func(t *testing.T, data []byte) {
		files, err := OpenBytes("fuzz", data)
		if err != nil {
			var format *FormatError
			if !errors.As(err, &format) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		for _, name := range files.Names() {
			info, _ := files.Lookup(name)
			if info.Offset < prefixBytes || info.Offset+info.Bytes > int64(len(data)) {
				t.Fatalf("tensor %q lies at %d+%d of %d bytes", name, info.Offset, info.Bytes, len(data))
			}
		}
	})
}
