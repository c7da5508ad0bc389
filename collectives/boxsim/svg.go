package boxsim

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// palette is distinguishable for the colour-blind (Okabe and Ito).
func palette(i int) string {
	colours := [...]string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8a7a00", "#7f7f7f"}
	return colours[i%len(colours)]
}

// canvas writes SVG. It becomes as wide as what is written on it.
type canvas struct {
	bytes.Buffer
	width, height float64
}

func newCanvas(height int) *canvas { return &canvas{width: leastWidth, height: float64(height)} }

// finish puts the frame around what was drawn.
func (c *canvas) finish() []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" font-family="Helvetica, Arial, sans-serif" font-size="12">`+"\n",
		c.width, c.height, c.width, c.height)
	fmt.Fprintf(&out, `<rect width="%.0f" height="%.0f" fill="#ffffff"/>`+"\n", c.width, c.height)
	_, _ = c.WriteTo(&out) // a buffer does not fail
	out.WriteString("</svg>\n")
	return out.Bytes()
}

// letterWidth is that of a wide font, of the size of most text.
const letterWidth = 7.2

func textWidth(text string) float64 { return letterWidth * float64(utf8.RuneCountInString(text)) }

// text writes at a place; anchor is start, middle or end.
func (c *canvas) text(x, y float64, anchor, style, text string) {
	fmt.Fprintf(c, `<text x="%.1f" y="%.1f" text-anchor="%s" %s>`, x, y, anchor, style)
	_ = xml.EscapeText(c, []byte(text)) // a buffer does not fail
	c.WriteString("</text>\n")
}

func (c *canvas) line(x1, y1, x2, y2 float64, style string) {
	fmt.Fprintf(c, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" %s/>`+"\n", x1, y1, x2, y2, style)
}

func (c *canvas) rect(x, y, w, h float64, style string) {
	fmt.Fprintf(c, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" %s/>`+"\n", x, y, w, max(h, 0), style)
}

// axis maps values to a stretch of the picture.
type axis struct {
	from, to float64 // values
	at, end  float64 // coordinates
	log      bool
}

func (a axis) place(v float64) float64 {
	lo, hi := a.from, a.to
	if a.log {
		v, lo, hi = math.Log(v), math.Log(lo), math.Log(hi)
	}
	return a.at + (v-lo)/(hi-lo)*(a.end-a.at)
}

// ticks are round values on the axis.
func (a axis) ticks() []float64 {
	var out []float64
	if a.log {
		for decade := math.Pow(10, math.Floor(math.Log10(a.from))); decade <= a.to; decade *= 10 {
			for _, m := range []float64{1, 2, 5} {
				if v := decade * m; v >= a.from*0.999 && v <= a.to*1.001 {
					out = append(out, v)
				}
			}
		}
		return out
	}
	step := math.Pow(10, math.Floor(math.Log10((a.to-a.from)/4)))
	for _, m := range []float64{1, 2, 5, 10} {
		if (a.to-a.from)/(step*m) <= 6 {
			step *= m
			break
		}
	}
	for v := math.Ceil(a.from/step) * step; v <= a.to*1.0001; v += step {
		out = append(out, v)
	}
	return out
}

// panel is one picture with axes and a legend on the right.
type panel struct {
	*canvas
	x, y   axis
	legend float64 // where its next line goes
	// lineHeight is that of a line of the legend.
	lineHeight float64
	marked     float64 // where the last label of the x axis ends
}

const (
	leastWidth  = 980
	panelHeight = 370
	plotLeft    = 70
	plotRight   = 690
	plotTop     = 52
	plotBottom  = 310
)

// newPanel draws the i-th picture's frame, with room for so many names in its legend.
func newPanel(c *canvas, i, names int, title, xTitle, yTitle string, x, y axis) *panel {
	top := float64(i * panelHeight)
	x.at, x.end = plotLeft, plotRight
	y.at, y.end = top+plotBottom, top+plotTop
	p := &panel{canvas: c, x: x, y: y, legend: top + plotTop + 6, lineHeight: min(20, (plotBottom-plotTop)/float64(max(names, 1)))}
	c.text(plotLeft, top+26, "start", `font-size="15" font-weight="bold"`, title)
	for _, v := range y.ticks() {
		at := y.place(v)
		c.line(plotLeft, at, plotRight, at, `stroke="#e3e3e3"`)
		c.text(plotLeft-8, at+4, "end", `fill="#333333"`, number(v))
	}
	c.line(plotLeft, y.at, plotRight, y.at, `stroke="#333333"`)
	c.line(plotLeft, y.at, plotLeft, y.end, `stroke="#333333"`)
	c.text((plotLeft+plotRight)/2, y.at+42, "middle", `fill="#333333"`, xTitle)
	middle := (y.at + y.end) / 2
	c.text(18, middle, "middle", fmt.Sprintf(`fill="#333333" transform="rotate(-90 18 %.1f)"`, middle), yTitle)
	return p
}

// mark labels a value of the x axis, unless its label would touch the last one.
func (p *panel) mark(x float64, label string) {
	p.line(x, p.y.at, x, p.y.at+5, `stroke="#333333"`)
	half := textWidth(label) / 2
	if x-half < p.marked {
		return
	}
	p.marked = x + half + letterWidth/2
	p.text(x, p.y.at+20, "middle", `fill="#333333"`, label)
}

// curve draws points and names them in the legend.
func (p *panel) curve(s series) {
	colour, dash := palette(s.colour), ""
	if d := s.kind.dash(); d != "" {
		dash = fmt.Sprintf(` stroke-dasharray="%s"`, d)
	}
	fmt.Fprintf(p, `<polyline fill="none" stroke="%s" stroke-width="2"%s points="`, colour, dash)
	for i := range s.xs {
		fmt.Fprintf(p, "%.1f,%.1f ", p.x.place(s.xs[i]), p.y.place(s.ys[i]))
	}
	p.WriteString("\"/>\n")
	for i := range s.xs {
		p.dot(p.x.place(s.xs[i]), p.y.place(s.ys[i]), colour, s.kind)
	}
	p.line(plotRight+18, p.legend, plotRight+46, p.legend, fmt.Sprintf(`stroke="%s" stroke-width="2"%s`, colour, dash))
	p.dot(plotRight+32, p.legend, colour, s.kind)
	p.name(s.name)
}

// dot marks a point: a disc, or a ring through host memory.
func (p *panel) dot(x, y float64, colour string, k kind) {
	switch k {
	case peerPath:
		fmt.Fprintf(p, `<circle cx="%.1f" cy="%.1f" r="2.6" fill="%s"/>`+"\n", x, y, colour)
	case hostPath:
		fmt.Fprintf(p, `<circle cx="%.1f" cy="%.1f" r="3" fill="#ffffff" stroke="%s" stroke-width="1.4"/>`+"\n", x, y, colour)
	}
}

// swatch names a filled colour in the legend.
func (p *panel) swatch(name, colour, style string) {
	p.rect(plotRight+22, p.legend-6, 20, 12, fmt.Sprintf(`fill="%s" %s`, colour, style))
	p.name(name)
}

// name is a line of the legend.
func (p *panel) name(name string) {
	p.text(plotRight+54, p.legend+4, "start", `fill="#222222"`, name)
	p.width = max(p.width, math.Ceil(plotRight+54+textWidth(name)+letterWidth))
	p.legend += p.lineHeight
}

// number is a value as it is read: 0.5, 20, 1k.
func number(v float64) string {
	if v >= 1e4 {
		return strconv.FormatFloat(v/1e3, 'g', 4, 64) + "k"
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}
