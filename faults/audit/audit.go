package audit

import (
	"fmt"
	"sync"
)

// Invariant names what must hold.
type Invariant string

// The invariants.
const (
	Identical Invariant = "identical"
	EndsOnce  Invariant = "ends-once"
	NoLoss    Invariant = "no-loss"
	Explained Invariant = "explained"
	Epochs    Invariant = "epochs"
	Bounds    Invariant = "bounds"
	AtRest    Invariant = "at-rest"
	Budget    Invariant = "budget"
)

var invariants = []Invariant{Identical, EndsOnce, NoLoss, Explained, Epochs, Bounds, AtRest, Budget}

// Audit collects what was seen.
type Audit struct {
	mu       sync.Mutex
	checked  map[Invariant]int
	breaches map[Invariant][]string
}

// New is an audit of nothing yet.
func New() *Audit {
	return &Audit{checked: map[Invariant]int{}, breaches: map[Invariant][]string{}}
}

// Verdict is what became of an invariant.
type Verdict struct {
	Name Invariant `json:"name"`
	Held bool      `json:"held"`
	// Checked is how often there was an occasion to break it.
	Checked int `json:"checked"`
	// Breaches are sentences, the first few.
	Breaches []string `json:"breaches,omitempty"`
}

// Verdicts are those of all invariants, in order.
func (a *Audit) Verdicts() []Verdict {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := make([]Verdict, len(invariants))
	for i, name := range invariants {
		list[i] = Verdict{Name: name, Held: len(a.breaches[name]) == 0, Checked: a.checked[name], Breaches: a.breaches[name]}
	}
	return list
}

// Held reports whether all invariants did.
func (a *Audit) Held() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.breaches) == 0
}

// mostBreaches is how many are told of each invariant.
const mostBreaches = 8

// check counts an occasion and notes a breach unless held.
func (a *Audit) check(name Invariant, held bool, format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.checked[name]++
	if !held && len(a.breaches[name]) < mostBreaches {
		a.breaches[name] = append(a.breaches[name], fmt.Sprintf(format, args...))
	}
}
