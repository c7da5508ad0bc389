package boxsim

import (
	"fmt"
	"math"

	"github.com/octet-run/octet/collectives"
)

// Draw answers a question as three pictures in one SVG: the time of an all-reduce
// against its size, what a verify pass consists of, and tokens per second against
// the length of the draft.
func (d *Decode) Draw(rows []Row, today []Today) ([]byte, error) {
	c := newCanvas(3 * panelHeight)
	if err := d.drawSizes(c, today); err != nil {
		return nil, err
	}
	if err := d.drawPasses(c, rows, today); err != nil {
		return nil, err
	}
	if err := d.drawSpeeds(c, rows, today); err != nil {
		return nil, err
	}
	return c.finish(), nil
}

// series is a curve to be drawn. No two of a picture have colour and kind in common.
type series struct {
	name   string
	colour int // of the palette: an algorithm has the same on every path
	kind   kind
	xs, ys []float64
}

// kind is how a curve is drawn.
type kind uint8

const (
	peerPath  kind = iota // ours: full lines, discs
	hostPath              // ours through host memory: dotted, rings
	elsewhere             // what others do, and levels to compare with: dashed
)

// dash is the pattern of a kind's lines, none for full ones.
func (k kind) dash() string { return [...]string{"", "2 3", "7 4"}[k] }

// add appends a point.
func (s *series) add(x, y float64) {
	s.xs = append(s.xs, x)
	s.ys = append(s.ys, y)
}

func bounds(all []series) (lowest, highest float64) {
	lowest, highest = math.Inf(1), 0
	for _, s := range all {
		for _, y := range s.ys {
			lowest, highest = min(lowest, y), max(highest, y)
		}
	}
	return lowest, highest
}

func (d *Decode) drawSizes(c *canvas, today []Today) error {
	var sizes []int
	for bytes := 1 << 10; bytes <= 1<<20; bytes *= 2 {
		sizes = append(sizes, bytes)
	}
	var all []series
	curve := func(s series, stack Stack, algorithm string) error {
		for _, bytes := range sizes {
			config := Config{Box: d.Box, Ranks: d.Ranks, Stack: stack, Algorithm: algorithm, Bytes: bytes}
			if algorithm != "" && config.Admits(algorithm) != nil {
				continue
			}
			r, err := Run(config)
			if err != nil {
				return err
			}
			s.add(float64(bytes), r.US)
		}
		if len(s.xs) > 0 {
			all = append(all, s)
		}
		return nil
	}
	for _, stack := range ours(d.Box) {
		for i, a := range collectives.Algorithms() {
			s := series{name: a.Name, colour: i}
			if stack.Host {
				s.name, s.kind = a.Name+", host memory", hostPath
			}
			if !a.Exact {
				continue
			}
			if err := curve(s, stack, a.Name); err != nil {
				return err
			}
		}
	}
	for i, t := range today {
		stack, err := FindStack(t.Stack)
		if err != nil {
			return err
		}
		if err := curve(series{name: t.Stack, colour: i, kind: elsewhere}, stack, ""); err != nil {
			return err
		}
	}
	low, high := bounds(all)
	p := newPanel(c, 0, len(all), fmt.Sprintf("All-reduce among %d ranks on %s", d.Ranks, d.Box.Name), "payload of a rank (KiB)", "microseconds",
		axis{from: float64(sizes[0]), to: float64(sizes[len(sizes)-1]), log: true}, axis{from: low * 0.8, to: high * 1.2, log: true})
	for i, bytes := range sizes {
		if i%2 == 0 {
			p.mark(p.x.place(float64(bytes)), fmt.Sprint(bytes>>10))
		}
	}
	p.curves(all)
	return nil
}

func (p *panel) curves(all []series) {
	for _, s := range all {
		p.curve(s)
	}
}

// bestRows is the fastest row for each number of tokens.
func (d *Decode) bestRows(rows []Row) []Row {
	var best []Row
	for _, tokens := range d.Tokens {
		var fastest Row
		for _, r := range rows {
			if r.Tokens == tokens && r.TokensPerS > fastest.TokensPerS {
				fastest = r
			}
		}
		best = append(best, fastest)
	}
	return best
}

// stackRows is the rows of another stack.
func (d *Decode) stackRows(name string) ([]Row, error) {
	s, err := FindStack(name)
	if err != nil {
		return nil, err
	}
	var rows []Row
	for _, tokens := range d.Tokens {
		row, err := d.row(d.reduce(s, "", tokens), tokens)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func (d *Decode) drawPasses(c *canvas, rows []Row, today []Today) error {
	groups := [][]Row{d.bestRows(rows)}
	names := []string{"left bar: Octet's best"}
	if len(today) > 0 {
		theirs, err := d.stackRows(today[0].Stack)
		if err != nil {
			return err
		}
		groups, names = append(groups, theirs), append(names, "right bar: "+today[0].Stack)
	}
	var most float64
	for _, group := range groups {
		for _, r := range group {
			most = max(most, r.VerifyMS)
		}
	}
	p := newPanel(c, 1, 3+len(names), fmt.Sprintf("A verify pass of %s, %d positions", d.Model.Name, d.Context), "tokens in the pass", "milliseconds",
		axis{from: 0, to: float64(len(d.Tokens))}, axis{from: 0, to: most * 1.08})
	width := (plotRight - plotLeft) / float64(len(d.Tokens))
	bar := width * 0.7 / float64(len(groups))
	for g, group := range groups {
		for i, r := range group {
			x := plotLeft + float64(i)*width + width*0.15 + float64(g)*bar
			opacity := ""
			if g > 0 {
				opacity = ` fill-opacity="0.55"`
			}
			var below float64
			for k, part := range []float64{r.ComputeMS, r.LaunchMS, r.VerifyMS - r.ComputeMS - r.LaunchMS} {
				top := p.y.place(below + part)
				p.rect(x, top, bar*0.94, p.y.place(below)-top, fmt.Sprintf(`fill="%s"%s`, palette(k), opacity))
				below += part
			}
		}
	}
	for i, tokens := range d.Tokens {
		p.mark(plotLeft+(float64(i)+0.5)*width, fmt.Sprint(tokens))
	}
	p.swatch("compute: bytes read / memory rate", palette(0), "")
	p.swatch("launches", palette(1), "")
	p.swatch("all-reduce", palette(2), "")
	for _, name := range names {
		p.name(name)
	}
	return nil
}

func (d *Decode) drawSpeeds(c *canvas, rows []Row, today []Today) error {
	speeds := func(s series, rows []Row) series {
		for _, r := range rows {
			s.add(float64(r.Tokens), r.TokensPerS)
		}
		return s
	}
	all := []series{speeds(series{name: "Octet's best"}, d.bestRows(rows))}
	for i, t := range today {
		theirs, err := d.stackRows(t.Stack)
		if err != nil {
			return err
		}
		all = append(all, speeds(series{name: t.Stack, colour: 1 + i}, theirs))
	}
	_, high := bounds(all)
	last := float64(d.Tokens[len(d.Tokens)-1])
	if plain := all[0]; plain.xs[0] == 1 {
		all = append(all, series{name: "Octet without speculation", kind: elsewhere, xs: []float64{1, max(last, 2)}, ys: []float64{plain.ys[0], plain.ys[0]}})
	}
	p := newPanel(c, 2, len(all), "Speed against draft length, with the tree that suits it", "tokens in the pass (1: no draft)", "tokens per second",
		axis{from: float64(d.Tokens[0]) * 0.95, to: max(last, float64(d.Tokens[0])+1) * 1.05, log: true}, axis{from: 0, to: high * 1.08})
	for _, tokens := range d.Tokens {
		p.mark(p.x.place(float64(tokens)), fmt.Sprint(tokens))
	}
	p.curves(all)
	return nil
}
