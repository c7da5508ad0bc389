package collectives

import (
	"fmt"
	"time"
)

// Verdict is what the probe found out about every directed pair of ranks, on the
// mapping that the collectives use. It is the same on all ranks.
type Verdict struct {
	Box   string `json:"box,omitempty"` // boot, driver and devices it holds for
	Ranks int    `json:"ranks"`
	Pairs []Pair `json:"pairs"`
}

// Pair is the path on which rank From writes memory of rank To, and To reads
// memory of From.
type Pair struct {
	From    int           `json:"from"`
	To      int           `json:"to"`
	Refused string        `json:"refused,omitempty"` // why the path must not be used
	Latency time.Duration `json:"latency_ns"`        // a flag, one way
	Push    float64       `json:"push_gbps"`         // 10^9 bytes/s written by From, alone
	Pull    float64       `json:"pull_gbps"`         // read by To, alone
	Loaded  float64       `json:"loaded_gbps"`       // written while all ranks write
}

// allows is nil where every path that the algorithm uses was found good.
func (v *Verdict) allows(a Algorithm, s Shape) error {
	if v == nil {
		return nil
	}
	for _, pair := range v.Pairs {
		if pair.Refused != "" && uses(a, s, pair.From, pair.To) {
			return fmt.Errorf("uses the path from rank %d to rank %d, which was refused: %s", pair.From, pair.To, pair.Refused)
		}
	}
	return nil
}

// uses reports whether data or flags go from one rank to another.
func uses(a Algorithm, s Shape, from, to int) bool {
	p := Payload{Rows: 1, Width: shardAlign * s.Ranks}
	for _, step := range a.Program(s, from, p) {
		if (step.Do == Put || step.Do == Signal) && (step.Peer == to || step.Peer == Everyone) {
			return true
		}
	}
	return false
}
