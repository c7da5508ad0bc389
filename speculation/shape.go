package speculation

import "fmt"

// Shape is the size of a tree: TopK candidates per expanded node, Steps levels,
// Nodes tokens per verify, the root included. The zero Shape is no draft.
type Shape struct {
	TopK, Steps, Nodes int
}

// Chain is the shape of a chain of the given number of drafted tokens.
func Chain(steps int) Shape {
	if steps <= 0 {
		return Shape{}
	}
	return Shape{TopK: 1, Steps: steps, Nodes: steps + 1}
}

// IsZero says that nothing is drafted.
func (s Shape) IsZero() bool { return s == Shape{} }

// String writes the shape as flags do.
func (s Shape) String() string {
	return fmt.Sprintf("topk=%d,steps=%d,tokens=%d", s.TopK, s.Steps, s.Nodes)
}

// ShapeError says why a tree of that shape cannot be built.
type ShapeError struct {
	Shape  Shape
	Reason string
}

func (e *ShapeError) Error() string {
	return fmt.Sprintf("tree %v: %s", e.Shape, e.Reason)
}

// Validate accepts the zero Shape and every shape that Builder can fill.
func (s Shape) Validate() error {
	if s.IsZero() {
		return nil
	}
	refuse := func(format string, args ...any) error {
		return &ShapeError{Shape: s, Reason: fmt.Sprintf(format, args...)}
	}
	if s.TopK < 1 || s.Steps < 1 {
		return refuse("topk and steps must be at least 1")
	}
	if s.Nodes < 2 || s.Nodes > MaxNodes {
		return refuse("tokens per verify must be from 2 to %d", MaxNodes)
	}
	if s.TopK == 1 && s.Nodes != s.Steps+1 {
		return refuse("a chain of %d steps has exactly %d tokens per verify", s.Steps, s.Steps+1)
	}
	if s.TopK > MaxNodes || s.DraftRows() > MaxNodes {
		return refuse("the drafter would run %d rows a round, at most %d fit; lower topk or steps", s.DraftRows(), MaxNodes)
	}
	if most := 1 + s.poolSize(); s.Nodes > most {
		return refuse("there are only %d candidates, root included; lower tokens to that", most)
	}
	return nil
}

// Limit is the shape with at most that many steps.
func (s Shape) Limit(steps int) Shape {
	switch {
	case s.Steps <= steps:
		return s
	case steps <= 0:
		return Shape{}
	case s.TopK == 1:
		return Chain(steps)
	}
	s.Steps = steps
	s.Nodes = min(s.Nodes, 1+s.poolSize())
	return s
}

// DraftRows is how many scratch rows the drafter runs in one round: one per beam
// member in each of the Steps-1 expansions.
func (s Shape) DraftRows() int { return (s.Steps - 1) * s.TopK }

// poolSize is the number of candidates: TopK of level 0, TopK*TopK of each later level.
func (s Shape) poolSize() int { return s.TopK + (s.Steps-1)*s.TopK*s.TopK }
