package modeltest

import "testing"

// TestOracleHoldsTheReferences shows that the oracle deserves its name.
func TestOracleHoldsTheReferences(t *testing.T) {
	for _, name := range []string{"llama-gqa", "qwen3", "deepseek-v3-kimi", "kimi-k25-int4"} {
		t.Run(name, func(t *testing.T) {
			c := Open(t, Fixture(name))
			var ref Reference
			ReadJSON(t, Fixture(name, "expected.json"), &ref)
			o := NewOracle(c)
			for i, want := range ref.Cases[:3] {
				logits := o.Logits(want.PromptIDs)
				for p, row := range logits {
					if Argmax(row) != want.ArgmaxPerPosition[p] {
						t.Errorf("case %d: argmax after position %d is %d, want %d", i, p, Argmax(row), want.ArgmaxPerPosition[p])
					}
				}
				if err := Near("last logits", logits[len(logits)-1], want.LastLogits, 1e-4); err != nil {
					t.Errorf("case %d: %v", i, err)
				}
			}
		})
	}
}
