package round

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "rewrite the golden frames")

func sampleRound() *Round {
	return &Round{Epoch: 7, Seq: 1 << 40, Entries: []Entry{
		{
			Kind: Prefill, Slot: 3, Request: 99, Tokens: []int32{1, -2, 3},
			Draft: Draft{By: Eagle3, TopK: 4, Steps: 5, Nodes: 16},
			Sampling: &Sampling{
				Temperature: 0.7, TopK: 40, TopP: 0.9, MinP: 0.05, Seed: 1 << 63, RepetitionPenalty: 1.1,
				PresencePenalty: -1, FrequencyPenalty: 2, LogitBias: map[int32]float32{9: -100, 2: 5},
				Logprobs: -1, PromptTokens: 12,
			},
		},
		{Kind: Decode, Slot: 4, Request: 100, Committed: 41, Accepted: []uint8{0, 2, 7}, Tokens: []int32{8}},
		{Kind: Release, Slot: 5, Request: 101},
		{Kind: Score, Slot: 6, Request: 102, Tokens: []int32{1, 2}, Last: true},
	}}
}

func sampleResult() *Result {
	return &Result{Epoch: 7, Seq: 2, Timings: Timings{Draft: 1, Compute: 2, Transfer: 3, Skew: 4, Launch: 5, Total: 15}, Outcomes: []Outcome{
		{
			Slot: 4, Path: []uint8{0, 2}, Tokens: []int32{8, 9}, Drafted: 3,
			Logprobs: []TokenLogprobs{
				{Token: 8, Logprob: -0.25, Top: []TokenLogprob{{Token: 8, Logprob: -0.25}, {Token: 1, Logprob: -3}}},
				{Token: 9, Logprob: float32(math.Inf(-1))},
			},
		},
		{Slot: 6, Argmax: []int32{5, 6}, Logits: []float32{0.5, -1}},
		{Slot: 7, Error: "logits of row 2 are not a number"},
	}}
}

func TestFramesComeBackAsTheyWent(t *testing.T) {
	for _, r := range []*Round{sampleRound(), {Epoch: 1, Seq: 1}} {
		frame, err := AppendRound(nil, r)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeRound(frame); err != nil || !reflect.DeepEqual(got, r) {
			t.Fatalf("decoded %+v, %v, want %+v", got, err, r)
		}
	}
	for _, r := range []*Result{sampleResult(), {Epoch: 1, Seq: 1}} {
		frame, err := AppendResult(nil, r)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeResult(frame); err != nil || !reflect.DeepEqual(got, r) {
			t.Fatalf("decoded %+v, %v, want %+v", got, err, r)
		}
	}
}

// The golden frames pin the layout: a change of it must come with a new version.
func TestFramesMatchTheGoldenFiles(t *testing.T) {
	roundFrame, err := AppendRound(nil, sampleRound())
	if err != nil {
		t.Fatal(err)
	}
	resultFrame, err := AppendResult(nil, sampleResult())
	if err != nil {
		t.Fatal(err)
	}
	for name, frame := range map[string][]byte{"round.hex": roundFrame, "result.hex": resultFrame} {
		path := filepath.Join("testdata", name)
		got := hex.Dump(frame)
		if *update {
			if err := os.MkdirAll("testdata", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s: frame is\n%swant\n%s", name, got, want)
		}
	}
}

func TestAppendAddsBehindWhatIsThere(t *testing.T) {
	frame, err := AppendRound([]byte("before"), sampleRound())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(frame, []byte("before")) {
		t.Fatal("the prefix is gone")
	}
	if _, err := DecodeRound(frame[6:]); err != nil {
		t.Fatal(err)
	}
}

func TestEveryFlippedBitIsNoticed(t *testing.T) {
	frame, err := AppendRound(nil, sampleRound())
	if err != nil {
		t.Fatal(err)
	}
	for bit := range len(frame) * 8 {
		frame[bit/8] ^= 1 << (bit % 8)
		if _, err := DecodeRound(frame); err == nil {
			t.Fatalf("a frame with bit %d flipped was accepted", bit)
		}
		frame[bit/8] ^= 1 << (bit % 8)
	}
}

func TestEveryTruncationIsNoticed(t *testing.T) {
	frame, err := AppendResult(nil, sampleResult())
	if err != nil {
		t.Fatal(err)
	}
	for n := range frame {
		var bad *FrameError
		if _, err := DecodeResult(frame[:n]); !errors.As(err, &bad) {
			t.Fatalf("a frame cut to %d bytes gave %v, want a FrameError", n, err)
		}
	}
}

func TestARoundIsNoResult(t *testing.T) {
	frame, err := AppendRound(nil, sampleRound())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeResult(frame); err == nil || !strings.Contains(err.Error(), "magic") {
		t.Fatalf("error is %v, want one about the magic", err)
	}
}

// A count that the bytes cannot hold must be refused before memory is taken for it.
func TestAHugeCountAllocatesNothing(t *testing.T) {
	frame := make([]byte, headerBytes+4)
	for i := range 4 {
		frame[headerBytes+i] = 0x7f
	}
	seal(frame, 0, roundMagic, 1, 1)
	allocated := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := DecodeRound(frame); err == nil {
				b.Fatal("accepted")
			}
		}
	}).AllocedBytesPerOp()
	if allocated > 4096 {
		t.Fatalf("%d bytes were allocated for a frame of %d", allocated, len(frame))
	}
}

func TestEncodingIntoAGrownBufferDoesNotAllocate(t *testing.T) {
	r := sampleRound()
	r.Entries[0].Sampling = nil // sorting the logit bias allocates
	buf, err := AppendRound(nil, r)
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { buf, _ = AppendRound(buf[:0], r) }); n > 0 {
		t.Fatalf("%v allocations", n)
	}
}

func TestRandomRoundsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &Round{Epoch: rapid.Uint32().Draw(t, "epoch"), Seq: rapid.Uint64().Draw(t, "seq")}
		for range rapid.IntRange(0, 6).Draw(t, "entries") {
			e := Entry{
				Kind:      Kind(rapid.IntRange(int(Prefill), int(Score)).Draw(t, "kind")),
				Slot:      rapid.Uint16().Draw(t, "slot"),
				Request:   rapid.Uint64().Draw(t, "request"),
				Committed: rapid.Uint32().Draw(t, "committed"),
				Accepted:  orNil(rapid.SliceOf(rapid.Uint8()).Draw(t, "accepted")),
				Tokens:    orNil(rapid.SliceOf(rapid.Int32()).Draw(t, "tokens")),
				Last:      rapid.Bool().Draw(t, "last"),
			}
			if rapid.Bool().Draw(t, "sampling") {
				e.Sampling = &Sampling{Seed: rapid.Uint64().Draw(t, "seed"), TopP: rapid.Float32().Draw(t, "top p")}
				if bias := rapid.MapOf(rapid.Int32(), rapid.Float32()).Draw(t, "bias"); len(bias) > 0 {
					e.Sampling.LogitBias = bias
				}
			}
			r.Entries = append(r.Entries, e)
		}
		frame, err := AppendRound(nil, r)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeRound(frame); err != nil || !reflect.DeepEqual(got, r) {
			t.Fatalf("decoded %+v, %v, want %+v", got, err, r)
		}
	})
}

func orNil[E any](s []E) []E {
	if len(s) == 0 {
		return nil
	}
	return s
}

// resealed makes arbitrary bytes a frame whose header is right, so that the
// fuzzer reaches the body.
func resealed(body []byte, magic string) []byte {
	frame := append(make([]byte, headerBytes), body...)
	seal(frame, 0, magic, 1, 1)
	return frame
}

func FuzzDecodeRound(f *testing.F) {
	frame, err := AppendRound(nil, sampleRound())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(frame[headerBytes:])
	f.Fuzz(func(t *testing.T, body []byte) {
		_, _ = DecodeRound(body) // as a whole frame
		frame := resealed(body, roundMagic)
		r, err := DecodeRound(frame)
		if err != nil {
			return
		}
		again, err := AppendRound(nil, r)
		if err != nil || !bytes.Equal(again, frame) {
			t.Fatalf("a frame that decodes encodes to %x, %v, want %x", again, err, frame)
		}
	})
}

func FuzzDecodeResult(f *testing.F) {
	frame, err := AppendResult(nil, sampleResult())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(frame[headerBytes:])
	f.Fuzz(func(t *testing.T, body []byte) {
		_, _ = DecodeResult(body)
		frame := resealed(body, resultMagic)
		r, err := DecodeResult(frame)
		if err != nil {
			return
		}
		again, err := AppendResult(nil, r)
		if err != nil || !bytes.Equal(again, frame) {
			t.Fatalf("a frame that decodes encodes to %x, %v, want %x", again, err, frame)
		}
	})
}
