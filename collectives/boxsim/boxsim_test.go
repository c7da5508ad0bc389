package boxsim

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/octet-run/octet/collectives"
	"github.com/octet-run/octet/collectives/topology"
)

func TestResultsAreFunctionsOfTheirArguments(t *testing.T) {
	for _, name := range calibratedBoxes {
		c := Config{Box: load(t, name), Stack: Stacks()[0], Bytes: 57344}
		first, err := Run(c)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if again, err := Run(c); err != nil || again != first {
				t.Errorf("%s: %+v, then %+v (%v)", name, first, again, err)
			}
		}
	}
}

// What the simulator does must be the program that the runtime is traced against:
// all steps of every rank, in order; a unit of LastArrival by one rank.
func TestTraceIsTheProgram(t *testing.T) {
	for _, name := range []string{"rtx-pro-6000x8", "this"} {
		box := load(t, name)
		for _, a := range collectives.Algorithms() {
			for _, fused := range []bool{false, true} {
				c := Config{Box: box, Stack: Stacks()[0], Algorithm: a.Name, Bytes: 57344, Fused: fused}
				if c.Admits(a.Name) != nil {
					continue
				}
				seen := make([][]int, c.ranks())
				units := map[int]int{}
				c.Trace = func(e Event) {
					program := a.Program(c.shape(), e.Rank, c.payload())
					if program[e.Step].Do != e.Do {
						t.Fatalf("%s: step %d of rank %d was %v, want %v", a.Name, e.Step, e.Rank, e.Do, program[e.Step])
					}
					if e.Op != 0 {
						return
					}
					if inUnit(program, e.Step) {
						units[e.Step]++
					} else {
						seen[e.Rank] = append(seen[e.Rank], e.Step)
					}
				}
				if _, err := Run(c); err != nil {
					t.Fatalf("%s on %s: %v", a.Name, name, err)
				}
				for r, steps := range seen {
					var want []int
					for i := range a.Program(c.shape(), r, c.payload()) {
						if !inUnit(a.Program(c.shape(), r, c.payload()), i) {
							want = append(want, i)
						} else if units[i] != 1 {
							t.Errorf("%s on %s: unit step %d was done %d times", a.Name, name, i, units[i])
						}
					}
					if !slices.Equal(steps, want) {
						t.Errorf("%s on %s: rank %d did steps %v, want %v", a.Name, name, r, steps, want)
					}
				}
			}
		}
	}
}

func inUnit(program []collectives.Step, step int) bool {
	for i, s := range program {
		if s.Do == collectives.LastArrival && step >= i && step <= i+s.Count {
			return true
		}
	}
	return false
}

// A two-shot among eight GPUs whose only limit is what a GPU stores to all its
// peers: two phases of 7/8 of the payload, and what is fixed.
func TestTwoShotByHand(t *testing.T) {
	box := load(t, "rtx-pro-6000x8")
	box.Fabric.SocketGBps = 1000
	stack := Stacks()[0]
	const bytes = 1 << 20
	r, err := Run(Config{Box: box, Stack: stack, Algorithm: "two-shot", Bytes: bytes})
	if err != nil {
		t.Fatal(err)
	}
	d := box.Fabric.Device
	egress := 2 * 7.0 / 8 * bytes / (d.ConcurrentGBps * 1e3)
	sum := d.PhaseUS + 9.0/8*bytes/(d.ReduceGBps*1e3)
	want := d.GraphLaunchUS + egress + 2*(2*1.3+d.PollUS) + sum // data, acknowledgement, flag
	if math.Abs(r.US/want-1) > 0.02 {
		t.Errorf("%.2f us, by hand %.2f", r.US, want)
	}
}

// Where the link between the islands is the narrow one, chunks keep it busy while
// others are scattered and gathered.
func TestAPipelineHidesWhatHappensWithinIslands(t *testing.T) {
	box := load(t, "rtx-pro-6000x8")
	box.Fabric.SocketGBps = 24
	var us [2]float64
	for i, name := range []string{"hierarchical", "pipelined hierarchical"} {
		r, err := Run(Config{Box: box, Stack: Stacks()[0], Algorithm: name, Bytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		us[i] = r.US
	}
	if us[1] > 0.95*us[0] {
		t.Errorf("%.1f us in a pipeline, %.1f without", us[1], us[0])
	}
}

func TestAStragglerIsSkewAndNotTransfer(t *testing.T) {
	c := Config{Box: load(t, "rtx-pro-6000x8"), Stack: Stacks()[0], Algorithm: "hierarchical", Bytes: 57344}
	even, err := Run(c)
	if err != nil {
		t.Fatal(err)
	}
	c.LateUS = []float64{0, 0, 0, 0, 0, 100, 0, 0}
	late, err := Run(c)
	if err != nil {
		t.Fatal(err)
	}
	// A late rank finds the others' data there and sends all phases at once, which
	// then share its link.
	if late.US > even.US*1.6 || late.SlowestUS < 100 || late.FastestUS > even.SlowestUS*1.6 {
		t.Errorf("one rank 100 us late: %+v, without %+v", late, even)
	}
}

func TestOnlyPostedWritesOfSeveralSourcesCollapse(t *testing.T) {
	box := load(t, "rtx-pro-6000x8-broadcom")
	c := Config{Box: box, Stack: Stacks()[0]}
	w, err := newWires(&c)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name  string
		pairs [][2]int
		want  bool
	}{
		{"one pair", [][2]int{{0, 2}}, false},
		{"two sources, one root", [][2]int{{0, 2}, {1, 3}}, false},
		{"two sources, two roots", [][2]int{{0, 2}, {1, 6}}, true},
		{"one source, two roots", [][2]int{{0, 2}, {0, 6}}, false},
		{"sources of different chips", [][2]int{{0, 2}, {3, 4}}, false},
		{"within the chip", [][2]int{{0, 4}, {1, 5}}, false},
	} {
		var flows []*flow
		for _, p := range tc.pairs {
			flows = append(flows, w.flow(p[0], p[1], 1e6))
		}
		share(flows, func(f *flow) []*link { return w.regimes(f, flows) })
		if got := flows[0].rate < 5; got != tc.want {
			t.Errorf("%s: %.1f GB/s, collapsed %v, want %v", tc.name, flows[0].rate, got, tc.want)
		}
	}
}

func TestBadQuestionsAreAnsweredInASentence(t *testing.T) {
	direct := load(t, "rtx-pro-6000x8")
	bare := &topology.Box{Name: "bare"}
	for _, tc := range []struct {
		config Config
		want   string
	}{
		{Config{Box: bare, Stack: Stacks()[0]}, "no fabric section"},
		{Config{Box: direct, Stack: Stacks()[0], Ranks: 9}, "has 8 GPUs"},
		{Config{Box: direct, Stack: Stacks()[0], Bytes: -1}, "-1 bytes"},
		{Config{Box: direct, Stack: Stacks()[0], Algorithm: "butterfly"}, "butterfly"},
		{Config{Box: direct, Stack: Stacks()[0], Algorithm: "central", Bytes: 1024}, "coherent"},
		{Config{Box: direct, Stack: Stacks()[0], LateUS: []float64{1}}, "stragglers"},
	} {
		if _, err := Run(tc.config); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("error %v, want one with %q", err, tc.want)
		}
	}
	if _, err := FindStack("mpi"); err == nil || !strings.Contains(err.Error(), "nccl-host") {
		t.Errorf("unknown stack: %v", err)
	}
}
