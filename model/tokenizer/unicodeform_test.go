package tokenizer

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// forms are the four normalisation forms.
var forms = []string{"NFC", "NFD", "NFKC", "NFKD"}

// Where runs of marks are short, both ways do what the standard says.
func TestPlainNormalisationIsTheStandards(t *testing.T) {
	alphabet := []rune("ae\u0301\u0316\u0345\u0308\u030aA\u00e5\u1100\u1161\u11a8\uac00\ufb01\u0f71\u0f72\u0915\u093c\u0334\u2126\u212b\u0958\u1e0b\u0323\u0307 \n中")
	rng := rand.New(rand.NewPCG(1, 2))
	for _, name := range forms {
		f, _ := formOf(name)
		for range 3000 {
			var b strings.Builder
			for range rng.IntN(12) {
				b.WriteRune(alphabet[rng.IntN(len(alphabet))])
			}
			s := b.String()
			want := f.form.String(s)
			if got := f.plain(s); got != want {
				t.Fatalf("%s of %+q is %+q, want %+q", name, s, got, want)
			}
			if got := f.normalize(s); got != want {
				t.Fatalf("%s of %+q is %+q, want %+q", name, s, got, want)
			}
		}
	}
}

func TestLongRunsOfMarksStayAsTheyAre(t *testing.T) {
	for _, n := range []int{1, 29, 30, 31, 32, 64, 1000} {
		acute := strings.Repeat("\u0301", n)
		for name, want := range map[string]string{
			"NFC": "\u00e1" + acute[2:], "NFD": "a" + acute, "NFKC": "\u00e1" + acute[2:], "NFKD": "a" + acute,
		} {
			f, _ := formOf(name)
			if got := f.normalize("a" + acute); got != want {
				t.Errorf("%s of %d accents: %+q", name, n, got)
			}
		}
	}
	f, _ := formOf("NFD")
	if got := f.normalize("x" + strings.Repeat("\u0301\u0316", 20)); got != "x"+strings.Repeat("\u0316", 20)+strings.Repeat("\u0301", 20) {
		t.Errorf("marks are in the order %+q", got)
	}
}

// Characters younger than Unicode 9 are text like any other: nothing moves past them.
func TestLaterCharactersTakeNoPart(t *testing.T) {
	for _, r := range []rune{0x7FD, 0x89B, 0x1AC1, 0x10D24, 0x1E030, 0x1FBF5} {
		if r < firstLater || !unicode.Is(later, r) {
			t.Errorf("%U is not in the table", r)
		}
		for _, name := range forms {
			f, _ := formOf(name)
			s := "\u0316" + string(r) + "\u0334"
			if got := f.normalize(s); got != s {
				t.Errorf("%s of %+q is %+q", name, s, got)
			}
			if got, want := f.normalize("e\u0301"+string(r)+"e\u0301"), norm.Form.String(f.form, "e\u0301"); got != want+string(r)+want {
				t.Errorf("%s around %U is %+q", name, r, got)
			}
		}
	}
}

func BenchmarkNormalize(b *testing.B) {
	for name, text := range map[string]string{
		"normal": corpus(), "decomposed": norm.NFD.String(corpus()), "marks": strings.Repeat("\u0301\u0316", 1<<18),
	} {
		f, _ := formOf("NFC")
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				f.normalize(text)
			}
		})
	}
}
