package faults

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Any, as a rank, means whichever rank gets there first.
const Any = -1

// Trigger says when a fault strikes. The first non-zero of its fields counts;
// with none it strikes at the first chance.
type Trigger struct {
	Round uint64        // at round N, counted from the start of the run
	Op    uint64        // at collective operation N of the epoch
	Hit   uint64        // at the N-th pass over the point
	After time.Duration // after this time from the start of the run
}

// Fault is one line of a script.
type Fault struct {
	Line int
	// Column is that of the rank, if it is given, or else of the verb.
	Column int
	When   Trigger
	Do     Verb
	At     Point         // where; empty for external verbs
	Rank   int           // which rank, or Any; Supervisor for the parent
	For    time.Duration // how long (stop, hang, delay)
	Every  uint64        // repeat each so many rounds (once each time), operations or hits; 0: once
}

// String is the fault in the script's language.
func (f Fault) String() string {
	var b strings.Builder
	switch w := f.When; {
	case w.Round > 0:
		fmt.Fprintf(&b, "at round %d ", w.Round)
	case w.Op > 0:
		fmt.Fprintf(&b, "at op %d ", w.Op)
	case w.Hit > 0:
		fmt.Fprintf(&b, "at hit %d ", w.Hit)
	case w.After > 0:
		fmt.Fprintf(&b, "after %v ", w.After)
	}
	b.WriteString(string(f.Do))
	if f.At != "" {
		fmt.Fprintf(&b, " at %s", f.At)
	}
	switch f.Rank {
	case Any:
	case Supervisor:
		b.WriteString(" rank=supervisor")
	default:
		fmt.Fprintf(&b, " rank=%d", f.Rank)
	}
	if f.For > 0 {
		fmt.Fprintf(&b, " for=%v", f.For)
	}
	if f.Every > 0 {
		fmt.Fprintf(&b, " every=%d", f.Every)
	}
	return b.String()
}

// Supervisor, as a rank, is the process that serves and supervises.
const Supervisor = -2

// Expectation is what a script says must come of it.
type Expectation struct {
	Line     int
	Column   int    // of what is expected
	Continue bool   // every request completes as without faults
	Error    string // or: the run ends with this typed error
}

// Script is a parsed fault script.
type Script struct {
	Faults       []Fault
	Expectations []Expectation
}

// SyntaxError is a line that is not in the language.
type SyntaxError struct {
	Line, Column int
	Problem      string
}

// Error names the line and column.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("fault script line %d, column %d: %s", e.Line, e.Column, e.Problem)
}

// Parse reads a script for a group of so many ranks. The language, one fault a
// line, '#' starts a comment:
//
//	[at round N | at op N | at hit N | after DURATION] VERB [at POINT] [rank=N|any|supervisor] [for=DURATION] [every=N]
//	expect continue
//	expect error NAME
func Parse(text string, ranks int) (*Script, error) {
	script := &Script{}
	for i, line := range strings.Split(text, "\n") {
		p := &parser{line: i + 1, ranks: ranks, words: split(line)}
		if len(p.words) == 0 {
			continue
		}
		if err := p.statement(script); err != nil {
			return nil, err
		}
	}
	return script, nil
}

type word struct {
	text   string
	column int
}

// split cuts a line into words, with the column each begins at.
func split(line string) []word {
	line, _, _ = strings.Cut(line, "#")
	var words []word
	for i := 0; i < len(line); {
		if strings.IndexByte(" \t\r", line[i]) >= 0 {
			i++
			continue
		}
		end := i
		for end < len(line) && strings.IndexByte(" \t\r", line[end]) < 0 {
			end++
		}
		words = append(words, word{line[i:end], i + 1})
		i = end
	}
	return words
}

type parser struct {
	line  int
	ranks int
	words []word
	next  int
	given []string // the arguments so far
}

func (p *parser) statement(script *Script) error {
	if p.accept("expect") {
		e, err := p.expectation()
		script.Expectations = append(script.Expectations, e)
		return err
	}
	f, err := p.fault()
	script.Faults = append(script.Faults, f)
	return err
}

func (p *parser) expectation() (Expectation, error) {
	e := Expectation{Line: p.line}
	if p.next < len(p.words) {
		e.Column = p.words[p.next].column
	}
	switch {
	case p.accept("continue"):
		e.Continue = true
	case p.accept("error"):
		name, err := p.take("the name of an error")
		if err != nil {
			return e, err
		}
		e.Error, e.Column = name.text, name.column
	default:
		return e, p.problem("expect must be followed by continue or error NAME")
	}
	return e, p.end()
}

func (p *parser) fault() (Fault, error) {
	f := Fault{Line: p.line, Rank: Any}
	if err := p.trigger(&f.When); err != nil {
		return f, err
	}
	if err := p.verb(&f); err != nil {
		return f, err
	}
	for p.next < len(p.words) {
		if err := p.argument(&f); err != nil {
			return f, err
		}
	}
	return f, p.check(&f)
}

func (p *parser) trigger(t *Trigger) error {
	switch {
	case p.accept("after"):
		w, err := p.take("a duration such as 2s")
		if err != nil {
			return err
		}
		t.After, err = p.duration(w, w.text)
		return err
	case p.accept("at"):
		kind, err := p.take("round, op or hit")
		if err != nil {
			return err
		}
		var into *uint64
		switch kind.text {
		case "round":
			into = &t.Round
		case "op":
			into = &t.Op
		case "hit":
			into = &t.Hit
		default:
			return p.problemAt(kind, "%q is no trigger: at round N, at op N, at hit N or after DURATION", kind.text)
		}
		n, err := p.take("a number")
		if err != nil {
			return err
		}
		*into, err = p.positive(n, n.text)
		return err
	}
	return nil
}

func (p *parser) verb(f *Fault) error {
	w, err := p.take("a verb")
	if err != nil {
		return err
	}
	f.Do, f.Column = Verb(w.text), w.column
	if _, inside := defaults[f.Do]; !inside && !f.Do.External() {
		return p.problemAt(w, "%q is no verb: %s", w.text, verbList())
	}
	f.At = defaults[f.Do]
	return nil
}

func (p *parser) argument(f *Fault) error {
	w := p.words[p.next]
	key, value, found := strings.Cut(w.text, "=")
	if slices.Contains(p.given, key) {
		return p.problemAt(w, "%s is given twice", key)
	}
	p.given = append(p.given, key)
	if p.accept("at") {
		return p.point(f)
	}
	p.next++
	if !found {
		return p.problemAt(w, "%q is not understood: want at POINT, rank=, for= or every=", w.text)
	}
	var err error
	switch key {
	case "rank":
		f.Column = w.column
		f.Rank, err = p.rank(w, value)
	case "for":
		f.For, err = p.duration(w, value)
	case "every":
		f.Every, err = p.positive(w, value)
	default:
		err = p.problemAt(w, "%q is no argument: rank, for or every", key)
	}
	return err
}

func (p *parser) point(f *Fault) error {
	w, err := p.take("a point")
	if err != nil {
		return err
	}
	if !slices.Contains(points, Point(w.text)) {
		return p.problemAt(w, "%q is no point; octet fault list names them", w.text)
	}
	if f.Do.External() {
		return p.problemAt(w, "%s acts on a whole process and takes no point", f.Do)
	}
	if ok, limited := allows[f.Do]; limited && !slices.Contains(ok, Point(w.text)) {
		return p.problemAt(w, "%s does not apply at %s, only at %s", f.Do, w.text, pointList(ok))
	}
	f.At = Point(w.text)
	return nil
}

func (p *parser) check(f *Fault) error {
	if (f.Do == Stop || f.Do == Delay) && f.For == 0 {
		return p.problem("%s needs for=DURATION", f.Do)
	}
	if f.For > 0 && !slices.Contains(lasting, f.Do) {
		return p.problem("%s takes no for=: only stop, hang, spin and delay last", f.Do)
	}
	if f.Do.External() && (f.When.Op > 0 || f.When.Hit > 0) {
		return p.problem("%s acts on a whole process: its time is a round or a duration", f.Do)
	}
	if f.When.After > 0 && f.Every > 0 {
		return p.problem("every= repeats rounds, operations or hits, not durations")
	}
	if f.Rank == Supervisor && !f.Do.External() {
		return p.problem("only kill, stop and term can strike the supervisor")
	}
	if ranks, _ := f.At.Sides(); f.Rank >= 0 && f.At != "" && !ranks {
		return p.problemAt(word{column: f.Column}, "no rank passes %s: it is the supervisor's", f.At)
	}
	return nil
}

func (p *parser) rank(w word, value string) (int, error) {
	switch value {
	case "any":
		return Any, nil
	case "supervisor":
		return Supervisor, nil
	}
	n, err := strconv.ParseUint(value, 10, 31)
	if err != nil || int(n) >= p.ranks {
		return 0, p.problemAt(w, "rank %q is not one of the group's %d ranks (0 to %d), any or supervisor", value, p.ranks, p.ranks-1)
	}
	return int(n), nil
}

func (p *parser) duration(w word, value string) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err != nil || d <= 0 {
		return 0, p.problemAt(w, "%q is not a positive duration such as 300ms or 2s", value)
	}
	return d, nil
}

func (p *parser) positive(w word, value string) (uint64, error) {
	n, err := strconv.ParseUint(value, 10, 63)
	if err != nil || n == 0 {
		return 0, p.problemAt(w, "%q is not a positive number", value)
	}
	return n, nil
}

func (p *parser) accept(text string) bool {
	if p.next < len(p.words) && p.words[p.next].text == text {
		p.next++
		return true
	}
	return false
}

func (p *parser) take(what string) (word, error) {
	if p.next == len(p.words) {
		return word{}, p.problem("the line ends where %s is expected", what)
	}
	p.next++
	return p.words[p.next-1], nil
}

func (p *parser) end() error {
	if p.next < len(p.words) {
		return p.problemAt(p.words[p.next], "%q is one word too many", p.words[p.next].text)
	}
	return nil
}

// problem points at the end of what has been read.
func (p *parser) problem(format string, args ...any) error {
	last := p.words[max(p.next-1, 0)]
	return p.problemAt(word{column: last.column + len(last.text)}, format, args...)
}

func (p *parser) problemAt(w word, format string, args ...any) error {
	return &SyntaxError{Line: p.line, Column: w.column, Problem: fmt.Sprintf(format, args...)}
}

func pointList(points []Point) string {
	var names []string
	for _, p := range points {
		names = append(names, string(p))
	}
	return strings.Join(names, " or ")
}

func verbList() string {
	var names []string
	for _, v := range Verbs() {
		names = append(names, string(v))
	}
	return strings.Join(names, ", ")
}
