package model

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Rope is a rotary embedding as the configuration describes it.
type Rope struct {
	Type        string // default, linear, llama3, yarn or longrope
	Theta       float64
	Dim         int  // rotated values per head
	Interleaved bool // pairs (2i, 2i+1) instead of (i, i+Dim/2)

	Factor   float64   // linear, llama3, yarn, longrope
	Original int       // positions the model was first trained for (llama3, yarn, longrope)
	Divide   []float64 // longrope: what the frequency of each pair is divided by

	LowFreq, HighFreq float64 // llama3

	BetaFast, BetaSlow   float64 // yarn
	MScale, MScaleAllDim float64 // yarn as DeepSeek uses it, 0 when absent
	Amplitude            float64 // attention_factor of yarn and longrope, 0 when absent
	Exact                bool    // yarn with truncate=false: correction bounds not rounded
}

// parseRope reads both dialects: rope_theta with rope_scaling, and rope_parameters.
// Where a file has both sections, rope_scaling is the one that counts.
func parseRope(f *Fields, dim int, maxPositions int) Rope {
	r := Rope{Type: "default", Theta: f.Float("rope_theta", 10000)}
	section := f.Object("rope_scaling")
	if section == nil || len(section.raw) == 0 {
		section = f.Object("rope_parameters")
	}
	partial := f.Float("partial_rotary_factor", 1)
	if section != nil {
		partial = section.Float("partial_rotary_factor", partial)
		original := section.Int("original_max_position_embeddings", maxPositions)
		r.Original = f.Int("original_max_position_embeddings", original)
		parseRopeScaling(section, &r, maxPositions)
	}
	if r.Theta <= 1 {
		where := f
		if section != nil && section.Has("rope_theta") {
			where = section
		}
		where.Fail("rope_theta", "expected a number above 1")
	}
	r.Dim = int(float64(dim) * partial)
	if partial <= 0 || partial > 1 || r.Dim < 2 || r.Dim%2 != 0 {
		f.Fail("partial_rotary_factor", "expected a part of the head that is an even number of values")
		r.Dim = 2
	}
	if section != nil && r.Type == "longrope" {
		parseLongRope(section, &r, maxPositions)
	}
	return r
}

func parseRopeScaling(f *Fields, r *Rope, maxPositions int) {
	for _, kind := range []string{"full_attention", "sliding_attention"} {
		if f.Has(kind) {
			f.Fail(kind, "supported is one rotary embedding for all layers")
		}
	}
	typeField := "rope_type"
	if !f.Has(typeField) && (f.Has("type") || f.Has("factor")) {
		typeField = "type"
	}
	// A dynamic base grows with sequences longer than max_position_embeddings,
	// which Octet does not run: up to there it is the default.
	fallback := "default"
	if f.Has("factor") {
		fallback = ""
	}
	r.Type = f.OneOf(typeField, fallback, "default", "linear", "dynamic", "llama3", "yarn", "longrope")
	if r.Type != "default" {
		r.MScaleAllDim = f.Float("mscale_all_dim", 0)
	}
	if r.Type == "dynamic" {
		r.Type = "default"
	}
	r.Theta = f.Float("rope_theta", r.Theta)
	r.Factor = f.Float("factor", 1)
	switch {
	case f.Has("factor") || r.Type == "default":
	case (r.Type == "yarn" || r.Type == "longrope") && r.Original > 0:
		r.Factor = float64(maxPositions) / float64(r.Original)
	default:
		f.Fail("factor", "expected a number of at least 1")
	}
	r.LowFreq = f.Float("low_freq_factor", 1)
	r.HighFreq = f.Float("high_freq_factor", 4)
	r.BetaFast = cmp.Or(f.Float("beta_fast", 32), 32) // 0 is taken as absent, as the published code does
	r.BetaSlow = cmp.Or(f.Float("beta_slow", 1), 1)
	r.MScale = f.Float("mscale", 0)
	r.Amplitude = f.Float("attention_factor", 0)
	r.Exact = !f.Bool("truncate", true)
	r.check(f)
}

// check refuses numbers with which the frequencies would not be any.
func (r *Rope) check(f *Fields) {
	if r.Factor < 1 && r.Type != "longrope" {
		f.Fail("factor", "expected a number of at least 1")
	}
	if r.Type == "llama3" && (r.LowFreq <= 0 || r.HighFreq <= r.LowFreq) {
		f.Fail("high_freq_factor", "expected more than low_freq_factor, and both above 0")
	}
	if r.Type == "yarn" && (r.BetaFast <= 0 || r.BetaSlow <= 0) {
		f.Fail("beta_fast", "expected beta_fast and beta_slow above 0")
	}
	switch r.Type {
	case "llama3", "yarn", "longrope":
		if r.Original < 1 {
			f.Fail("original_max_position_embeddings", "expected a positive integer")
			r.Original = 1
		}
	}
}

// parseLongRope reads what longrope divides the frequencies by, a number for each
// pair. Beyond the original positions other divisors hold, for all positions of a
// sequence: keys would have to be rotated again there, so that Octet does not go there.
func parseLongRope(f *Fields, r *Rope, maxPositions int) {
	r.Divide = f.Floats("short_factor")
	for _, name := range []string{"short_factor", "long_factor"} {
		factors := f.Floats(name)
		if len(factors) != r.Dim/2 || slices.ContainsFunc(factors, func(v float64) bool { return v <= 0 }) {
			f.Fail(name, fmt.Sprintf("expected %d numbers above 0, half of the rotated values of a head", r.Dim/2))
			r.Divide = nil
		}
	}
	if r.Amplitude == 0 && r.Factor > 1 && r.Original > 1 {
		r.Amplitude = math.Sqrt(1 + math.Log(r.Factor)/math.Log(float64(r.Original)))
	}
}

// Frequencies is the angle per position of each rotated pair.
func (r Rope) Frequencies() []float64 {
	freqs := make([]float64, r.Dim/2)
	for i := range freqs {
		freqs[i] = math.Pow(r.Theta, -float64(2*i)/float64(r.Dim))
	}
	switch r.Type {
	case "linear":
		for i := range freqs {
			freqs[i] /= r.Factor
		}
	case "llama3":
		r.scaleLlama3(freqs)
	case "yarn":
		r.scaleYarn(freqs)
	case "longrope":
		for i := range min(len(freqs), len(r.Divide)) {
			freqs[i] /= r.Divide[i]
		}
	}
	return freqs
}

// scaleLlama3 slows the waves that are long against the original context and
// blends between (Llama 3.1's scaling).
func (r Rope) scaleLlama3(freqs []float64) {
	original := float64(r.Original)
	for i, f := range freqs {
		wavelength := 2 * math.Pi / f
		switch {
		case wavelength < original/r.HighFreq:
		case wavelength > original/r.LowFreq:
			freqs[i] = f / r.Factor
		default:
			smooth := (original/wavelength - r.LowFreq) / (r.HighFreq - r.LowFreq)
			freqs[i] = (1-smooth)*f/r.Factor + smooth*f
		}
	}
}

// scaleYarn interpolates slow dimensions, keeps fast ones and ramps between
// (Peng et al., YaRN: Efficient Context Window Extension of Large Language Models).
func (r Rope) scaleYarn(freqs []float64) {
	bound := func(rotations float64) float64 {
		return float64(r.Dim) * math.Log(float64(r.Original)/(rotations*2*math.Pi)) / (2 * math.Log(r.Theta))
	}
	low, high := bound(r.BetaFast), bound(r.BetaSlow)
	if !r.Exact {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(r.Dim-1))
	if low == high {
		high += 0.001
	}
	for i, f := range freqs {
		ramp := min(max((float64(i)-low)/(high-low), 0), 1)
		freqs[i] = f/r.Factor*ramp + f*(1-ramp)
	}
}

// YarnScale is m(x) = 0.1 x ln(factor) + 1.
func YarnScale(factor, x float64) float64 {
	if factor <= 1 {
		return 1
	}
	return 0.1*x*math.Log(factor) + 1
}

// amplitude is what cosines and sines are multiplied by.
func (r Rope) amplitude() float64 {
	switch {
	case r.Type != "yarn" && r.Type != "longrope":
		return 1
	case r.Amplitude != 0:
		return r.Amplitude
	case r.Type == "longrope":
		return 1
	case r.MScale != 0 && r.MScaleAllDim != 0:
		return YarnScale(r.Factor, r.MScale) / YarnScale(r.Factor, r.MScaleAllDim)
	}
	return YarnScale(r.Factor, 1)
}

// Tables are cosines and sines, [positions, Dim/2] each. Angles are formed in
// float32, as the models were trained.
func (r Rope) Tables(positions int) (cos, sin []float32) {
	freqs := r.Frequencies()
	amplitude := r.amplitude()
	cos = make([]float32, positions*len(freqs))
	sin = make([]float32, len(cos))
	for p := range positions {
		for i, f := range freqs {
			s, c := math.Sincos(float64(float32(p) * float32(f)))
			cos[p*len(freqs)+i] = float32(c * amplitude)
			sin[p*len(freqs)+i] = float32(s * amplitude)
		}
	}
	return cos, sin
}
