package boxsim

import "testing"

// near is how much slower than the fastest a prediction may be between the sizes that
// it compared.
const near = 1.03

func TestThePredictionIsTheFastestEverywhere(t *testing.T) {
	for _, name := range someBoxes() {
		box := load(t, name)
		c := Config{Box: box}
		p, err := Predict(box, c.ranks())
		if err != nil {
			t.Fatal(err)
		}
		for _, fused := range []bool{false, true} {
			c.Fused = fused
			for _, bytes := range []int{1 << 10, 7168, 14336, 57344, 100000, 1 << 20} {
				all, err := c.compete(bytes)
				if err != nil {
					t.Fatal(err)
				}
				chosen := p.Choose(bytes, fused)
				for _, other := range append(all.Others, all.Simulated) {
					if other.Algorithm == chosen.Algorithm && other.Path == chosen.Path && other.US > near*all.US {
						t.Errorf("%s, %d bytes, fused %v: %s by %s path takes %.2f us, %s by %s path %.2f", name, bytes, fused,
							chosen.Algorithm, chosen.Path, other.US, all.Algorithm, all.Path, all.US)
					}
				}
			}
		}
	}
}

// As measured, and as the policy has it: what counts there is how often a rank gives
// its core away, not what it sums.
func TestRanksThatShareCoresDoBestWithTheCentralAlgorithm(t *testing.T) {
	prediction, err := Predict(load(t, "this"), 8)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range prediction.Choices {
		if c.Algorithm != "central" {
			t.Errorf("up to %d bytes, fused %v: %s at %.1f us, then %+v", c.MaxBytes, c.Fused, c.Algorithm, c.US, c.Others)
		}
	}
}
