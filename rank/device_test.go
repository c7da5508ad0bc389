package rank

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/collectives/transport"
	"github.com/octet-run/octet/internal/shm"
	"github.com/octet-run/octet/kernels/cuda"
)

func deviceConfig(t testing.TB) Config {
	c := pairConfig(t)
	c.Backend, c.Devices, c.CollectiveTimeout = CUDA, []string{"0000:00:00.0"}, 5*time.Minute
	return c
}

// devicePlaces puts every rank on a fake device.
func devicePlaces(f *fakeFabric) func(*transport.Group, int) Place {
	shared := make([]byte, DeviceBytes(len(f.devices)))
	return func(slabs *transport.Group, rank int) Place {
		at := place(slabs, rank)
		at.Device = shared
		at.open = func(*Config, int, func()) (device, error) { return newFakeDevice(f, rank) }
		return at
	}
}

func TestRanksOnDevicesReproduceTheRecordedPair(t *testing.T) {
	for ranks, count := range map[int]int{1: 2, 2: 3, 3: 1} {
		if testing.Short() && ranks != 2 {
			continue
		}
		t.Run(fmt.Sprintf("ranks=%d", ranks), func(t *testing.T) {
			f := newFakeFabric(ranks)
			g := newGroupAt(t, deviceConfig(t), ranks, devicePlaces(f))
			c := recordedCases(t)[0]
			for i, s := range settings[:count] {
				if i == 1 {
					f.devices[0].stale = true // as when memory has moved
				}
				q := &request{id: uint64(i), prompt: c.PromptIDs, sampling: round.Sampling{Logprobs: -1}, draft: s.draft}
				g.run(len(c.Greedy), q)
				reference := slices.Concat(c.Greedy, c.Overshoot)
				if n := min(len(q.tokens), len(reference)); !slices.Equal(q.tokens[:n], reference[:n]) {
					t.Errorf("%q: tokens differ from the record", s.name)
				}
				if want := c.Accept[s.name].AcceptLengths; s.name != "" && !slices.Equal(q.lengths, want) {
					t.Errorf("%s: accepted %v, recorded %v", s.name, q.lengths, want)
				}
			}
			for _, d := range f.devices {
				if d.replayed == 0 {
					t.Errorf("no pass of rank %d was replayed", d.rank)
				}
			}
		})
	}
}

// loadAll makes engines on threads of their own and returns what each said.
func loadAll(c Config, f *fakeFabric, slabs *transport.Group, at func(*transport.Group, int) Place) ([]*Engine, []error) {
	engines, errs := make([]*Engine, len(f.devices)), make([]error, len(f.devices))
	var all sync.WaitGroup
	for r := range engines {
		all.Go(func() { engines[r], errs[r] = Load(c, at(slabs, r), func(int64, int64) {}) })
	}
	all.Wait()
	return engines, errs
}

func newSlabs(t *testing.T, c Config, ranks int, epoch uint32) *transport.Group {
	t.Helper()
	slabs, err := transport.Create(transport.Config{Ranks: ranks, MaxRows: c.MaxRows, MaxWidth: 512, Epoch: epoch})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slabs.Close() })
	return slabs
}

func TestAllRanksTakeThePathThatWorksForAll(t *testing.T) {
	wrong := errors.New("yields wrong bits")
	for _, c := range []struct {
		name        string
		broken      []path // on rank 1 alone
		requireFast bool
		want        path
		refused     string // "": none
	}{
		{"all work", nil, false, peerPath, ""},
		{"no peer memory", []path{peerPath}, false, hostPath, ""},
		{"no peer memory, which is required", []path{peerPath}, true, 0, "the fast path is required"},
		{"nothing works", []path{peerPath, hostPath}, false, 0, "no path between the GPUs works"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFakeFabric(2)
			f.broken = func(rank int, p path) error {
				if rank == 1 && slices.Contains(c.broken, p) {
					return wrong
				}
				return nil
			}
			config := deviceConfig(t)
			config.Draft, config.RequireFast = "", c.requireFast
			engines, errs := loadAll(config, f, newSlabs(t, config, 2, 1), devicePlaces(f))
			for r, err := range errs {
				if c.refused == "" {
					if err != nil {
						t.Fatalf("rank %d: %v", r, err)
					}
					if got := engines[r].reducer.(*deviceReducer).path; got != c.want {
						t.Errorf("rank %d took %v, not %v", r, got, c.want)
					}
					if err := engines[r].Close(); err != nil {
						t.Error(err)
					}
					continue
				}
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("rank %d: %v", r, err)
				}
				if blamed := errors.Is(err, wrong); blamed != (r == 1) {
					t.Errorf("rank %d says %q", r, err)
				}
			}
		})
	}
}

// TestASurvivorLeavesByTheAbortWordAndJoinsTheNextEpoch has rank 0 wait for a rank
// that does not come, as after a kill.
func TestASurvivorLeavesByTheAbortWordAndJoinsTheNextEpoch(t *testing.T) {
	config := deviceConfig(t)
	config.Draft = ""
	f := newFakeFabric(2)
	at := devicePlaces(f)
	slabs := newSlabs(t, config, 2, 1)
	engines, errs := loadAll(config, f, slabs, at)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	prompt := round.Entry{Kind: round.Prefill, Tokens: []int32{1, 2, 3}, Last: true, Sampling: &round.Sampling{Logprobs: -1}}
	first := &round.Round{Epoch: 1, Seq: 1, Entries: []round.Entry{prompt}}
	shared := at(slabs, 0).Device
	stepped := make(chan error, 1)
	go func() {
		_, err := engines[0].Step(first)
		stepped <- err
	}()
	report := control(shared, peerPath)[128:] // rank 0's, as its kernel would leave it
	report[4], report[8], report[12], report[0] = 7, 1, 1, 1
	time.Sleep(time.Millisecond)
	abortDevices(shared)
	err := <-stepped
	var abort *shm.AbortError
	if !errors.As(err, &abort) || abort.Rank != 1 || abort.Reason != shm.TimedOut || !strings.Contains(err.Error(), "all-reduce 7 of the GPUs (scatter)") {
		t.Errorf("the step ended with %v", err)
	}

	for _, e := range engines {
		if err := e.Leave(); err != nil {
			t.Fatal(err)
		}
	}
	clear(shared)
	f.arrived = 0
	next := newSlabs(t, config, 2, 2)
	var all sync.WaitGroup
	for r, e := range engines {
		all.Go(func() {
			if err := e.Rejoin(at(next, r)); err != nil {
				t.Error(err)
				return
			}
			if _, err := e.Step(&round.Round{Epoch: 2, Seq: 1, Entries: []round.Entry{prompt}}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if cuda.Aborted(control(shared, peerPath)) {
		t.Error("the next epoch was aborted")
	}
	for _, e := range engines {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestOpeningADeviceWithoutCUDASaysSo(t *testing.T) {
	config := deviceConfig(t)
	slabs := newSlabs(t, config, 1, 1)
	_, err := Load(config, place(slabs, 0), func(int64, int64) {})
	if err == nil || !strings.Contains(err.Error(), "cuda") {
		t.Errorf("loading says %v", err)
	}
}
