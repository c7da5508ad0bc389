package boxsim

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/octet-run/octet/deploy/boxes"
)

// tiny is a model of two layers.
func tiny() Model {
	return Model{Name: "<tiny> & small", Layers: 2, Hidden: 1024, Split: 1e8, Whole: 1e6, Experts: 16, TopK: 2, SparseLayers: 2, Expert: 1e6, CacheWhole: 1e3}
}

func question(t testing.TB, box string, ranks int) Decode {
	return Decode{
		Box: load(t, box), Model: tiny(), Ranks: ranks, Context: 100, Tokens: []int{1, 2, 4, 8},
		Draft: Draft{Acceptance: []float64{0.8, 0.7}, Sibling: 0.3, StepUS: 50},
	}
}

// drawn is the picture of an answer beside what runs today.
func drawn(t *testing.T, d Decode, rows []Row) []byte {
	t.Helper()
	today, err := d.Today()
	if err != nil {
		t.Fatal(err)
	}
	picture, err := d.Draw(rows, today)
	if err != nil {
		t.Fatal(err)
	}
	return picture
}

func TestPicturesAreWellFormed(t *testing.T) {
	for _, tc := range []struct {
		box   string
		ranks int
	}{{"rtx-pro-6000x8", 8}, {"rtx-pro-6000x8-broadcom", 8}, {"rtx-pro-6000x8-virtual-numa", 8}, {"h200x2", 2}, {"this", 8}} {
		d := question(t, tc.box, tc.ranks)
		rows, best, err := d.Rows()
		if err != nil || best.TokensPerS <= 0 {
			t.Fatalf("%s: best %+v (%v)", tc.box, best, err)
		}
		picture := drawn(t, d, rows)
		decoder := xml.NewDecoder(bytes.NewReader(picture))
		for {
			if _, err := decoder.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", tc.box, err)
			}
		}
		for _, bad := range []string{"NaN", "Inf", "<tiny>"} {
			if strings.Contains(string(picture), bad) {
				t.Errorf("%s: the picture has %q in it", tc.box, bad)
			}
		}
		if !strings.Contains(string(picture), "tokens per second") || !strings.Contains(string(picture), best.Algorithm) {
			t.Errorf("%s: the picture lacks an axis title or %s", tc.box, best.Algorithm)
		}
	}
}

// element is what matters of an SVG element for its layout.
type element struct {
	XMLName xml.Name
	X       float64 `xml:"x,attr"`
	Y       float64 `xml:"y,attr"`
	Anchor  string  `xml:"text-anchor,attr"`
	Turn    string  `xml:"transform,attr"`
	Stroke  string  `xml:"stroke,attr"`
	Dash    string  `xml:"stroke-dasharray,attr"`
	Fill    string  `xml:"fill,attr"`
	Text    string  `xml:",chardata"`
}

type drawing struct {
	Width    float64   `xml:"width,attr"`
	Height   float64   `xml:"height,attr"`
	Elements []element `xml:",any"`
}

// box is where a text lies: left, top, right, bottom.
func (e element) box() [4]float64 {
	width := textWidth(e.Text)
	left := map[string]float64{"start": e.X, "middle": e.X - width/2, "end": e.X - width}[e.Anchor]
	return [4]float64{left, e.Y - 10, left + width, e.Y + 2}
}

// crowding is what overlaps or lies outside in a drawing, and curves that look alike.
func (d drawing) crowding() []string {
	var faults []string
	var texts []element
	curves := map[string]bool{}
	for _, e := range d.Elements {
		switch {
		case e.XMLName.Local == "text" && e.Turn == "":
			texts = append(texts, e)
		case e.XMLName.Local == "polyline":
			panel := e.Stroke + " " + e.Dash
			if curves[panel] {
				faults = append(faults, "two curves are "+panel)
			}
			curves[panel] = true
		case e.XMLName.Local == "text": // the turned title of a panel's y axis: curves of the next one
			clear(curves)
		}
	}
	for i, e := range texts {
		a := e.box()
		if a[0] < 0 || a[2] > d.Width || a[1] < 0 || a[3] > d.Height {
			faults = append(faults, e.Text+" leaves the picture")
		}
		for _, other := range texts[:i] {
			if b := other.box(); a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3] {
				faults = append(faults, e.Text+" lies on "+other.Text)
			}
		}
	}
	return faults
}

func parseDrawing(t *testing.T, picture []byte) drawing {
	t.Helper()
	var d drawing
	if err := xml.Unmarshal(picture, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// someBoxes is all captured ones, or the quickest and the most crowded.
func someBoxes() []string {
	if testing.Short() {
		return []string{"h200x2", "rtx-pro-6000x8", "this"}
	}
	return boxes.Names()
}

func TestPicturesAreNotCrowded(t *testing.T) {
	for _, name := range someBoxes() {
		box := load(t, name)
		d := question(t, name, (&Config{Box: box}).ranks())
		d.Tokens = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 24, 25, 26, 64}
		rows, _, err := d.Rows()
		if err != nil {
			t.Fatal(err)
		}
		picture := drawn(t, d, rows)
		for _, fault := range parseDrawing(t, picture).crowding() {
			t.Errorf("%s: %s", name, fault)
		}
	}
}

// The control: what is crowded is found out.
func TestCrowdingIsNoticed(t *testing.T) {
	long := strings.Repeat("a long name ", 40)
	for want, draw := range map[string]func(c *canvas){
		"lies on": func(c *canvas) {
			c.text(100, 100, "start", "", "one name")
			c.text(110, 104, "start", "", "another")
		},
		"leaves": func(c *canvas) { c.text(900, 100, "start", "", long) },
		"two curves": func(c *canvas) {
			for range 2 {
				c.WriteString(`<polyline stroke="red" points="1,1 2,2"/>`)
			}
		},
	} {
		c := newCanvas(200)
		draw(c)
		if faults := parseDrawing(t, c.finish()).crowding(); len(faults) != 1 || !strings.Contains(faults[0], want) {
			t.Errorf("%v, want one that %s", faults, want)
		}
	}
}
