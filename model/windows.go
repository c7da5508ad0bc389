package model

import "slices"

// slidingLayers reads layer_types, which newer configurations have.
func slidingLayers(f *Fields, layers int) []bool {
	types := f.Strings("layer_types")
	if types == nil {
		return nil
	}
	if len(types) != layers {
		f.Fail("layer_types", "expected one entry a layer")
		return nil
	}
	sliding := make([]bool, layers)
	for i, t := range types {
		switch t {
		case "sliding_attention":
			sliding[i] = true
		case "full_attention":
		default:
			f.Fail("layer_types", "supported are full_attention and sliding_attention")
		}
	}
	return sliding
}

// windows is the window of every layer that slides, or nil when none does.
func windows(size int, sliding []bool) []int {
	if size == 0 || !slices.Contains(sliding, true) {
		return nil
	}
	w := make([]int, len(sliding))
	for i, s := range sliding {
		if s {
			w[i] = size
		}
	}
	return w
}

// windowSize is sliding_window: null is none, and 4096 is meant where it is left out.
func windowSize(f *Fields) int { return f.IntOr("sliding_window", 4096, 0) }

// everyLayer is the windows of a model all of whose layers slide.
func everyLayer(size, layers int) []int {
	if size == 0 {
		return nil
	}
	return slices.Repeat([]int{size}, layers)
}
