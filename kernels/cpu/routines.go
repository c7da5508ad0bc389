package cpu

//go:generate go run ./asm -part tiles -out tiles_amd64.s -stubs tiles_amd64.go -pkg cpu
//go:generate sh -c "go run ./asm -part table | gofmt > tiletable_amd64.go"
//go:generate go run ./asm -part vectors -out vectors_amd64.s -stubs vectors_amd64.go -pkg cpu
//go:generate go run ./asm -part spans -out spans_amd64.s -stubs spans_amd64.go -pkg cpu

// routines are the inner loops of one instruction set. The fields say what they
// compute; oracle_*.go defines it. Lengths are those of the first argument.
type routines struct {
	tiles   [formats]tileSet // empty in plain Go
	weigh   spanSet          // empty in plain Go
	columns int              // of the narrowest span function

	add        func(dst, x, y []float32)                                  // dst = x + y
	scaleMul   func(dst, x, w []float32, scale float32)                   // dst = x*scale*w
	scale      func(dst []float32, scale float32)                         // dst *= scale
	axpy       func(dst []float32, a float32, x []float32)                // dst += a*x
	merge      func(dst []float32, old float32, x []float32, now float32) // dst = x*now + dst*old
	sumSquares func(x []float32) float32
	max        func(x []float32) float32
	expSum     func(x []float32, scale, m float32) float32 // x = e^(x*scale-m), and the sum
	sumExp     func(x []float32, m float32) float32        // sum of e^(x-m)
	swiglu     func(dst, gate, up []float32)
}

func genericRoutines() routines {
	return routines{
		add:        oracleAdd,
		scaleMul:   oracleScaleMul,
		scale:      oracleScale,
		axpy:       oracleAxpy,
		merge:      oracleMerge,
		sumSquares: oracleSumSquares,
		max:        oracleMax,
		expSum:     oracleExpSum,
		sumExp:     oracleSumExp,
		swiglu:     oracleSwiGLU,
	}
}
