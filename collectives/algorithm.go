package collectives

import (
	"fmt"
	"strings"

	"github.com/octet-run/octet/collectives/transport"
)

// Algorithm is one way to reduce, described as data: what it admits and the steps
// that each rank takes. Runtime, tracing and simulator all follow Program.
type Algorithm struct {
	Name    string
	Summary string
	// Exact says that the sum has the bits of the contract.
	Exact bool
	// Sum and Normed are where the results lie: common buffers or the rank's own.
	Sum    transport.Region
	Normed transport.Region
	// Admits is nil where the algorithm can run, else the reason why not.
	Admits func(s Shape, p Payload) error
	// Program is the steps of one rank. It is defined where Admits is nil.
	Program func(s Shape, rank int, p Payload) []Step
}

// Algorithms is all of them, in the order in which ties are broken.
func Algorithms() []Algorithm {
	return []Algorithm{central(), oneShot(), packets(), sharedTwoShot(), twoShot(), hierarchical(), pipelined(), ring()}
}

// Find is the algorithm of a name.
func Find(name string) (Algorithm, error) {
	var names []string
	for _, a := range Algorithms() {
		if a.Name == name {
			return a, nil
		}
		names = append(names, a.Name)
	}
	return Algorithm{}, fmt.Errorf("no all-reduce algorithm %q: want one of %s", name, strings.Join(names, ", "))
}

func needsCoherent(s Shape) error {
	if !s.Coherent {
		return fmt.Errorf("needs one coherent memory")
	}
	return nil
}
