package speculation

import "math/bits"

// uniform is the coin of one position: a number in [0, 1) with 53 bits, a
// function of (seed, position) alone.
func uniform(seed uint64, position int) float64 {
	counter := [4]uint32{uint32(position), uint32(uint64(position) >> 32)}
	word := philox(counter, [2]uint32{uint32(seed), uint32(seed >> 32)})
	return float64((uint64(word[1])<<32|uint64(word[0]))>>11) / (1 << 53)
}

// philox is Philox4x32-10.
func philox(counter [4]uint32, key [2]uint32) [4]uint32 {
	const (
		multiplier0, multiplier1 = 0xD2511F53, 0xCD9E8D57
		weyl0, weyl1             = 0x9E3779B9, 0xBB67AE85
		rounds                   = 10
	)
	for range rounds {
		high0, low0 := bits.Mul32(multiplier0, counter[0])
		high1, low1 := bits.Mul32(multiplier1, counter[2])
		counter = [4]uint32{high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0}
		key[0] += weyl0
		key[1] += weyl1
	}
	return counter
}
