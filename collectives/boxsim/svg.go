package boxsim

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
)

// palette is distinguishable for the colour-blind (Okabe and Ito).
func palette(i int) string {
	colours := [...]string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8a7a00", "#7f7f7f"}
	return colours[i%len(colours)]
}

// canvas writes SVG.
type canvas struct {
	bytes.Buffer
}

func newCanvas(width, height int) *canvas {
	c := &canvas{}
	fmt.Fprintf(c, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="Helvetica, Arial, sans-serif" font-size="12">`+"\n", width, height, width, height)
	fmt.Fprintf(c, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	return c
}

func (c *canvas) finish() []byte {
	c.WriteString("</svg>\n")
	return c.Bytes()
}

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
}

const (
	panelWidth  = 980
	panelHeight = 370
	plotLeft    = 70
	plotRight   = 690
	plotTop     = 52
	plotBottom  = 310
)

// newPanel draws the i-th picture's frame.
func newPanel(c *canvas, i int, title, xTitle, yTitle string, x, y axis) *panel {
	top := float64(i * panelHeight)
	x.at, x.end = plotLeft, plotRight
	y.at, y.end = top+plotBottom, top+plotTop
	p := &panel{canvas: c, x: x, y: y, legend: top + plotTop + 6}
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

// mark labels a value of the x axis.
func (p *panel) mark(x float64, label string) {
	p.line(x, p.y.at, x, p.y.at+5, `stroke="#333333"`)
	p.text(x, p.y.at+20, "middle", `fill="#333333"`, label)
}

// curve draws points and names them in the legend.
func (p *panel) curve(name, colour string, dashed bool, xs, ys []float64) {
	dash := ""
	if dashed {
		dash = ` stroke-dasharray="6 4"`
	}
	fmt.Fprintf(p, `<polyline fill="none" stroke="%s" stroke-width="2"%s points="`, colour, dash)
	for i := range xs {
		fmt.Fprintf(p, "%.1f,%.1f ", p.x.place(xs[i]), p.y.place(ys[i]))
	}
	p.WriteString("\"/>\n")
	if !dashed {
		for i := range xs {
			fmt.Fprintf(p, `<circle cx="%.1f" cy="%.1f" r="2.6" fill="%s"/>`+"\n", p.x.place(xs[i]), p.y.place(ys[i]), colour)
		}
	}
	p.line(plotRight+18, p.legend, plotRight+46, p.legend, fmt.Sprintf(`stroke="%s" stroke-width="2"%s`, colour, dash))
	p.name(name)
}

// swatch names a filled colour in the legend.
func (p *panel) swatch(name, colour, style string) {
	p.rect(plotRight+22, p.legend-6, 20, 12, fmt.Sprintf(`fill="%s" %s`, colour, style))
	p.name(name)
}

func (p *panel) name(name string) {
	p.text(plotRight+54, p.legend+4, "start", `fill="#222222"`, name)
	p.legend += 20
}

// number is a value as it is read: 0.5, 20, 1k.
func number(v float64) string {
	if v >= 1e4 {
		return strconv.FormatFloat(v/1e3, 'g', 4, 64) + "k"
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}
