package collectives

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/octet-run/octet/collectives/transport"
)

// lyingLink is fast and wrong: what rank 0 writes to some memory does not get there.
type lyingLink struct {
	*transport.SharedMemory
	lies      place
	elsewhere []float32
}

// place is memory as Transport.Memory names it.
type place struct {
	region      transport.Region
	owner, peer int
}

// toRank2 is where rank 0 writes for rank 2.
var toRank2 = place{transport.Inbox, 2, 0}

func lying(m *transport.SharedMemory, lies place) lyingLink {
	return lyingLink{m, lies, make([]float32, m.Capacity())}
}

func (l lyingLink) Memory(region transport.Region, owner, peer int, op uint32) []float32 {
	if l.Rank() == 0 && l.lies == (place{region, owner, peer}) {
		return l.elsewhere
	}
	return l.SharedMemory.Memory(region, owner, peer, op)
}

func probeAll(t *testing.T, ranks int, wrap func(*transport.SharedMemory) transport.Transport) []Verdict {
	t.Helper()
	g := newGroup(t, transport.Config{Ranks: ranks, MaxRows: 1, MaxWidth: 4096})
	verdicts := make([]Verdict, ranks)
	mustAll(t, runOn(t, g, func(rank int) error {
		m, err := g.Attach(rank, transport.Polling{Timeout: limit})
		if err != nil {
			return err
		}
		c, err := New(wrap(m), Config{})
		if err != nil {
			return err
		}
		if verdicts[rank], err = c.Probe(Probe{Pings: 5}); err != nil {
			return err
		}
		return reduceSizes(c, []int{100, 4096}) // operations go on after a probe
	}))
	return verdicts
}

func TestProbeMeasuresEveryDirectedPair(t *testing.T) {
	for _, ranks := range []int{1, 2, 5} {
		verdicts := probeAll(t, ranks, func(m *transport.SharedMemory) transport.Transport { return m })
		if got, want := len(verdicts[0].Pairs), ranks*(ranks-1); got != want {
			t.Fatalf("%d pairs, want %d", got, want)
		}
		for r, v := range verdicts {
			if !reflect.DeepEqual(v, verdicts[0]) {
				t.Errorf("rank %d has another verdict than rank 0", r)
			}
		}
		for _, p := range verdicts[0].Pairs {
			if p.Refused != "" || p.Latency <= 0 || p.Push <= 0 || p.Pull <= 0 || p.LoadedPush <= 0 || p.LoadedPull <= 0 {
				t.Errorf("pair %+v", p)
			}
		}
	}
}

func TestProbeRefusesAPathThatIsFastAndWrong(t *testing.T) {
	verdicts := probeAll(t, 3, func(m *transport.SharedMemory) transport.Transport {
		return lying(m, toRank2)
	})
	for _, p := range verdicts[1].Pairs {
		if wrong := p.From == 0 && p.To == 2; wrong != (p.Refused != "") {
			t.Errorf("pair %d -> %d: refused %q", p.From, p.To, p.Refused)
		}
	}
	if _, err := (Policy{Shape: Shape{Ranks: 3}, Verdict: &verdicts[0]}).Plan(nil); err == nil {
		t.Error("a plan was made over a refused path")
	}
}

func TestVerdictsAreKeptAsJSONAndMustBeComplete(t *testing.T) {
	v := Verdict{Box: "boot", Ranks: 2, Pairs: []Pair{{From: 0, To: 1, Push: 50}, {From: 1, To: 0, Refused: lostText}}}
	var buf bytes.Buffer
	if err := v.Write(&buf); err != nil {
		t.Fatal(err)
	}
	again, err := ReadVerdict(&buf)
	if err != nil || !reflect.DeepEqual(again, v) {
		t.Fatalf("read back %+v, %v", again, err)
	}
	if !v.HoldsFor("boot", 2) || v.HoldsFor("next boot", 2) || v.HoldsFor("boot", 4) {
		t.Error("a verdict holds for its own box and group alone")
	}
	if text := v.Explain(); !strings.Contains(text, "refused: "+lostText) {
		t.Errorf("the verdict is explained as\n%s", text)
	}
	for _, bad := range []string{
		`{"ranks":2,"pairs":[]}`,
		`{"ranks":2,"pairs":[{"from":0,"to":1},{"from":0,"to":1}]}`,
		`{"ranks":2,"pairs":[{"from":0,"to":1},{"from":1,"to":2}]}`,
		`{"ranks":99}`, `{"rank":2}`, `[`,
	} {
		if _, err := ReadVerdict(strings.NewReader(bad)); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
}

func FuzzReadVerdict(f *testing.F) {
	f.Add([]byte(`{"ranks":2,"pairs":[{"from":0,"to":1},{"from":1,"to":0,"refused":"x"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := ReadVerdict(bytes.NewReader(data))
		if err != nil {
			return
		}
		_, err = Policy{Shape: Shape{Ranks: v.Ranks}, Verdict: &v}.Pick(Payload{Rows: 1, Width: 64})
		for _, p := range v.Pairs {
			if p.Refused != "" && err == nil {
				t.Errorf("pair %d -> %d is refused and used", p.From, p.To)
			}
		}
	})
}

func TestTuneVerifiesAndTimesWhatIsAdmitted(t *testing.T) {
	shape := Shape{Ranks: 4, Islands: []int{2, 2}, Coherent: true}
	hashes := make([]uint64, 4)
	tc := transport.Config{Ranks: 4, MaxRows: 4, MaxWidth: 1024}
	mustAll(t, each(t, tc, transport.Polling{Timeout: limit}, Config{}, func(c *Communicator) error {
		plan, measured, err := c.Tune(Tune{Policy: Policy{Shape: shape}, Sizes: []int{1024, 16384}, Width: 256, Iterations: 5})
		if err != nil {
			return err
		}
		if want := 2 * (7 + 2); len(measured) != want { // sizes; exact algorithms, of which two have one residual
			return fmt.Errorf("%d measurements, want %d: %+v", len(measured), want, measured)
		}
		if n := len(plan.Choices); n != 4 || plan.Choices[n-1].MaxBytes != 0 {
			return fmt.Errorf("plan %+v", plan)
		}
		hashes[c.Rank()] = plan.Hash()
		return c.Barrier()
	}))
	for r, h := range hashes {
		if h != hashes[0] {
			t.Errorf("rank %d made another plan than rank 0", r)
		}
	}
}
