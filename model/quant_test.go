package model

import (
	"math/rand/v2"
	"regexp"
	"testing"
)

// The fast form of a pattern says what the plain one does.
func TestIgnorePatternsMatchFromTheBeginning(t *testing.T) {
	patterns := []string{
		`.*self_attn.*`, `.*mlp\.(gate|up|gate_up|down)_proj.*`, `model\.layers\.1\..*`, `.*gate|up`, `.*a|b|.*c`, `up`,
		`.*up$`, `.*^up`, `.*\.*`, `.*\\.*`, `.*.*`, `.*`, ``, `.*(a|b)`, `.*(?i)UP`, `.*x?`, `.*.*up.*.*`, `.*up\b`, `.*[.]*`, `.*[^.*]`,
	}
	pieces := []string{"model", ".layers.", "1", "self_attn", "mlp.", "gate", "up", "down", "_proj", "a", "b", "c", ".", `\`}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, pattern := range patterns {
		fast, err := compileIgnore(pattern)
		if err != nil {
			t.Fatal(err)
		}
		plain := regexp.MustCompile("^(?:" + pattern + ")")
		for range 2000 {
			name := ""
			for range rng.IntN(6) {
				name += pieces[rng.IntN(len(pieces))]
			}
			if got, want := fast.MatchString(name), plain.MatchString(name); got != want {
				t.Fatalf("%q of %q: %v, want %v", pattern, name, got, want)
			}
		}
	}
}
