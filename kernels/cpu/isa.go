package cpu

import (
	"fmt"

	"golang.org/x/sys/cpu"
)

// ISA is an instruction set that the routines exist for. All give the same bits.
type ISA uint8

// Auto takes the best that the machine has.
const (
	Auto ISA = iota
	Generic
	AVX2
	AVX512
)

var isaNames = [...]string{"auto", "generic", "avx2", "avx512"}

// String returns the lower-case name of i.
func (i ISA) String() string {
	if int(i) < len(isaNames) {
		return isaNames[i]
	}
	return fmt.Sprintf("isa(%d)", uint8(i))
}

// ParseISA is the inverse of String.
func ParseISA(name string) (ISA, error) {
	for i, n := range isaNames {
		if n == name {
			return ISA(i), nil
		}
	}
	return Auto, fmt.Errorf("cpu: unknown instruction set %q: use one of %v", name, isaNames)
}

// Detect returns the best instruction set of this machine.
func Detect() ISA {
	switch {
	case !cpu.X86.HasAVX2 || !cpu.X86.HasFMA:
		return Generic
	case cpu.X86.HasAVX512F && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512BW:
		return AVX512
	}
	return AVX2
}

// resolve replaces Auto by the best and refuses what the machine lacks.
func (i ISA) resolve() (ISA, error) {
	best := Detect()
	if i == Auto {
		return best, nil
	}
	if i > best {
		return i, fmt.Errorf("cpu: instruction set %v is not available here: this machine has %v", i, best)
	}
	return i, nil
}
