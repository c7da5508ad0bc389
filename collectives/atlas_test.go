package collectives

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/octet-run/octet/collectives/transport"
	"github.com/octet-run/octet/internal/testgroup"
)

// runOn runs body for every rank of a group.
func runOn(t testing.TB, g *transport.Group, body func(rank int) error) []error {
	t.Helper()
	return testgroup.Goroutines(t, g.Ranks(), limit, body)
}

// atlas finds the place that an address belongs to.
type atlas struct {
	link   transport.Transport
	places []Place
}

func newAtlas(link transport.Transport) *atlas {
	w := &atlas{link: link}
	w.places = append(w.places, at(transport.Common, 0), at(transport.CommonNormed, 0))
	for owner := range link.Ranks() {
		for _, region := range []transport.Region{transport.Partial, transport.Result, transport.Normed, transport.Scratch} {
			w.places = append(w.places, at(region, owner))
		}
		for peer := range link.Ranks() {
			w.places = append(w.places, inbox(owner, peer))
		}
	}
	return w
}

// locate is the place and the first element of memory of the first operation.
func (w *atlas) locate(mem []float32) (Place, int) {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	for _, p := range w.places {
		buf := w.link.Memory(p.Region, p.Owner, p.Peer, w.link.FirstOp())
		base := uintptr(unsafe.Pointer(unsafe.SliceData(buf)))
		if at >= base && at < base+uintptr(4*len(buf)) {
			return p, int(at-base) / 4
		}
	}
	return Place{}, -1
}

// line is what was done, in the words of stepLines.
func (w *atlas) line(do Action, from [][]float32, to []float32) string {
	if do == LastArrival {
		return do.String()
	}
	text := do.String()
	var first, length int
	for _, f := range from {
		if f == nil { // the residual, at the same elements as where it goes
			_, first = w.locate(to)
			text += fmt.Sprintf(" residual[%d:%d]", first, first+len(to))
			continue
		}
		var p Place
		p, first = w.locate(f)
		length = len(f)
		text += fmt.Sprintf(" %v[%d:%d]", p, first, first+length)
	}
	if to == nil {
		return text + fmt.Sprintf(" -> residual[%d:%d]", first, first+length)
	}
	p, first := w.locate(to)
	return text + fmt.Sprintf(" -> %v[%d:%d]", p, first, first+len(to))
}

// stepLines is what a step must leave in the log.
func stepLines(s Step) []string {
	switch s.Do {
	case Signal, Wait:
		return []string{flagLine(s.Do, s.Peer, s.Tag)}
	case LastArrival:
		return []string{s.Do.String()}
	}
	text := s.Do.String()
	for _, f := range s.From {
		text += fmt.Sprintf(" %v[%d:%d]", f, s.Lo, s.Hi)
	}
	lines := []string{text + fmt.Sprintf(" -> %v[%d:%d]", s.To, s.Lo, s.Hi)}
	if s.Packet {
		lines = append(lines, flagLine(Signal, s.Peer, s.Tag))
	}
	return lines
}
