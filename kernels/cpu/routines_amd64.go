package cpu

func routinesFor(isa ISA) routines {
	r := genericRoutines()
	if isa == Generic {
		return r
	}
	r.add, r.scaleMul, r.scale = addAVX2, scaleMulAVX2, scaleAVX2
	r.axpy, r.merge, r.sumSquares = axpyAVX2, mergeAVX2, sumSquaresAVX2
	r.max, r.expSum, r.sumExp, r.swiglu = maxAVX2, expSumAVX2, sumExpAVX2, swigluAVX2
	r.tiles, r.columns = tilesAVX2(), 8
	r.weigh = spanSet{
		{rows: 2, many: spanRows2Cols4AVX2, one: spanRows2Cols1AVX2},
		{rows: 1, many: spanRows1Cols4AVX2, one: spanRows1Cols1AVX2},
	}
	if isa == AVX512 {
		r.tiles, r.columns = tilesAVX512(), 16
		r.weigh = spanSet{
			{rows: 4, many: spanRows4Cols4AVX512, one: spanRows4Cols1AVX512},
			{rows: 2, many: spanRows2Cols4AVX512, one: spanRows2Cols1AVX512},
			{rows: 1, many: spanRows1Cols4AVX512, one: spanRows1Cols1AVX512},
		}
	}
	return r
}

// sumTree spreads the sources over the parameters of the generated functions.
func sumTree(dst []float32, s [][]float32) {
	if Detect() == Generic {
		oracleSumTree(dst, s)
		return
	}
	switch len(s) {
	case 1:
		copy(dst, s[0])
	case 2:
		sumTree2AVX2(dst, s[0], s[1])
	case 3:
		sumTree3AVX2(dst, s[0], s[1], s[2])
	case 4:
		sumTree4AVX2(dst, s[0], s[1], s[2], s[3])
	case 5:
		sumTree5AVX2(dst, s[0], s[1], s[2], s[3], s[4])
	case 6:
		sumTree6AVX2(dst, s[0], s[1], s[2], s[3], s[4], s[5])
	case 7:
		sumTree7AVX2(dst, s[0], s[1], s[2], s[3], s[4], s[5], s[6])
	case 8:
		sumTree8AVX2(dst, s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7])
	}
}

// addTree spreads the sources of a segment as sumTree does.
func addTree(dst []float32, s *[maxSumTree][]float32, n int) float32 {
	if Detect() == Generic {
		return oracleAddTree(dst, s[:n])
	}
	switch n {
	case 2:
		return addTree2AVX2(dst, s[0], s[1])
	case 3:
		return addTree3AVX2(dst, s[0], s[1], s[2])
	case 4:
		return addTree4AVX2(dst, s[0], s[1], s[2], s[3])
	case 5:
		return addTree5AVX2(dst, s[0], s[1], s[2], s[3], s[4])
	case 6:
		return addTree6AVX2(dst, s[0], s[1], s[2], s[3], s[4], s[5])
	case 7:
		return addTree7AVX2(dst, s[0], s[1], s[2], s[3], s[4], s[5], s[6])
	case 8:
		return addTree8AVX2(dst, s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7])
	}
	addAVX2(dst, dst, s[0])
	return sumSquaresAVX2(dst)
}

func add(dst, x, y []float32) {
	if Detect() == Generic {
		oracleAdd(dst, x, y)
		return
	}
	addAVX2(dst, x, y)
}

func widenBF16(dst []float32, src []uint16) {
	n := 0
	if Detect() != Generic {
		n = len(src) &^ 15
		widenBF16AVX2(dst, src[:n])
	}
	oracleWidenBF16(dst[n:], src[n:])
}

func widenF16(dst []float32, src []uint16) {
	n := 0
	if Detect() != Generic {
		n = len(src) &^ 15
		widenF16AVX2(dst, src[:n])
	}
	oracleWidenF16(dst[n:], src[n:])
}

func sumSquares(x []float32) float32 {
	if Detect() == Generic {
		return oracleSumSquares(x)
	}
	return sumSquaresAVX2(x)
}

func scaleMul(dst, x, w []float32, scale float32) {
	if Detect() == Generic {
		oracleScaleMul(dst, x, w, scale)
		return
	}
	scaleMulAVX2(dst, x, w, scale)
}

// blockOfRead is what read reads whole multiples of.
const blockOfRead = 256

// read loads all of p.
func read(p []byte) byte {
	if Detect() == Generic {
		return oracleRead(p)
	}
	return readAVX2(p)
}
