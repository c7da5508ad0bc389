package tokenizer

import (
	"fmt"
	"strings"
	"testing"
)

// corpus is text of several kinds with few repetitions, about 1 MB.
func corpus() string {
	var b strings.Builder
	for i := 0; b.Len() < 1<<20; i++ {
		fmt.Fprintf(&b, "func (s *Server) handle%d(ctx context.Context, request *Request) (*Response, error) {\n", i)
		fmt.Fprintf(&b, "\tif request.Deadline.Before(time.Now()) {\n\t\treturn nil, fmt.Errorf(\"request %d is late by %d ms\", id)\n\t}\n}\n", i*7, i%991)
		fmt.Fprintf(&b, "The quick brown fox jumps over %d lazy dogs; it's naïve to think they won't notice.\n", i)
		fmt.Fprintf(&b, "你好，世界。这是第%d段文字，こんにちは世界。\n", i)
	}
	return b.String()
}

func BenchmarkEncode(b *testing.B) {
	text := corpus()
	for _, name := range []string{"llama3", "kimi", "llama2"} {
		tok := mustLoadFixture(b, name)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				tok.Encode(text, true)
			}
		})
	}
}

// BenchmarkEncodeLongPiece shows that a piece without a cut takes n log n.
func BenchmarkEncodeLongPiece(b *testing.B) {
	tok := mustLoadFixture(b, "llama3")
	for _, size := range []int{1 << 10, 1 << 14, 1 << 18} {
		text := strings.Repeat("internationalisation", size/20+1)[:size]
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.SetBytes(int64(size))
			for b.Loop() {
				tok.Encode(text, false)
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	text := corpus()
	for _, name := range []string{"llama3", "kimi", "llama2"} {
		tok := mustLoadFixture(b, name)
		ids := tok.Encode(text, false)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				tok.Decode(ids, false)
			}
		})
	}
}

func BenchmarkStreamPush(b *testing.B) {
	tok := mustLoadFixture(b, "llama3")
	ids := tok.Encode(corpus()[:1<<14], false)
	s := tok.NewStream(true)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Push(ids[i%len(ids)])
	}
}
