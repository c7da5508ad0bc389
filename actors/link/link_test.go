package link

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/octet-run/octet/faults"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const epoch = 5

// pair makes both ends of a link in one process.
func pair(t testing.TB, c Config) (supervisor, rank *End) {
	t.Helper()
	segment, err := Create(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = segment.Close() })
	supervisor, err = Open(segment, c, epoch, "supervisor", "rank 3", true)
	if err != nil {
		t.Fatal(err)
	}
	rank, err = Open(segment, c, epoch, "rank 3", "supervisor", false)
	if err != nil {
		t.Fatal(err)
	}
	return supervisor, rank
}

func TestFramesArriveInOrderBothWays(t *testing.T) {
	a, b := pair(t, Config{Capacity: 1024})
	const frames = 1000 // the ring goes round often; each time costs a turn of the other side
	var group sync.WaitGroup
	flow := func(from, to *End) {
		group.Go(func() {
			for i := range frames {
				body := bytes.Repeat([]byte{byte(i)}, rand.IntN(300))
				if err := from.Send(Frame{Type: uint16(i), Target: "rank", Sender: "group", Body: body}); err != nil {
					t.Error(err)
					return
				}
			}
		})
		group.Go(func() {
			for i := range frames {
				f, err := to.Receive()
				if err != nil {
					t.Error(err)
					return
				}
				if f.Type != uint16(i) || f.Seq != uint64(i+1) || f.Epoch != epoch || f.Target != "rank" || f.Sender != "group" ||
					!bytes.Equal(f.Body, bytes.Repeat([]byte{byte(i)}, len(f.Body))) {
					t.Errorf("frame %d arrived as %+v", i, f)
					return
				}
			}
		})
	}
	flow(a, b)
	flow(b, a)
	group.Wait()
}

func TestManySendersShareALink(t *testing.T) {
	a, b := pair(t, Config{Capacity: 1024})
	var senders sync.WaitGroup
	for i := range 4 {
		senders.Go(func() {
			for range 200 {
				if err := a.Send(Frame{Target: fmt.Sprint("actor", i)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	counts := map[string]int{}
	for range 800 {
		f, err := b.Receive()
		if err != nil {
			t.Fatal(err)
		}
		counts[f.Target]++
	}
	senders.Wait()
	for i := range 4 {
		if n := counts[fmt.Sprint("actor", i)]; n != 200 {
			t.Errorf("%d frames for actor %d, want 200", n, i)
		}
	}
}

func TestAFullRingIsAnErrorAfterABoundedWait(t *testing.T) {
	a, b := pair(t, Config{Capacity: 1024, SendTimeout: 20 * time.Millisecond})
	var err error
	sent := 0
	for ; err == nil && sent < 100; sent++ {
		err = a.Send(Frame{Target: "rank", Body: make([]byte, 100)})
	}
	var link *Error
	if !errors.Is(err, ErrFull) || !errors.As(err, &link) || link.Link != "supervisor -> rank 3" || link.Seq != uint64(sent) {
		t.Fatalf("error is %v after %d frames, want ErrFull naming link and frame", err, sent)
	}
	if _, err := b.Receive(); err != nil {
		t.Fatal(err)
	}
	if err := a.Send(Frame{Target: "rank", Body: make([]byte, 100)}); err != nil {
		t.Fatalf("with room again: %v", err)
	}
}

func TestAFrameThatCannotFitIsRefusedAtOnce(t *testing.T) {
	a, _ := pair(t, Config{Capacity: 1024})
	if err := a.Send(Frame{Target: "rank", Body: make([]byte, 600)}); err == nil || errors.Is(err, ErrFull) {
		t.Fatalf("error is %v, want one about the size", err)
	}
	if err := a.Send(Frame{Target: strings.Repeat("x", 300)}); err == nil {
		t.Fatal("a name of 300 bytes was accepted")
	}
}

func TestFramesOfAnOldEpochAreDroppedAndCounted(t *testing.T) {
	a, b := pair(t, Config{})
	a.epoch = epoch - 1
	for range 3 {
		if err := a.Send(Frame{Target: "rank"}); err != nil {
			t.Fatal(err)
		}
	}
	a.epoch, a.sent = epoch, 0
	if err := a.Send(Frame{Target: "rank", Type: 9}); err != nil {
		t.Fatal(err)
	}
	f, err := b.Receive()
	if err != nil || f.Type != 9 || b.Stale() != 3 {
		t.Fatalf("received %+v, %v, %d stale; want type 9 and 3 stale", f, err, b.Stale())
	}
}

func TestDamageIsALinkError(t *testing.T) {
	for name, damage := range map[string]func(a, b *End){
		"flipped bit":       func(a, _ *End) { a.out.data[30] ^= 1 },
		"length zero":       func(a, _ *End) { binary.LittleEndian.PutUint32(a.out.data, 0) },
		"length huge":       func(a, _ *End) { binary.LittleEndian.PutUint32(a.out.data, 1<<31) },
		"head behind tail":  func(a, _ *End) { a.out.head.Store(^uint64(0)) },
		"head far ahead":    func(a, _ *End) { a.out.head.Store(1 << 40) },
		"torn write":        func(a, _ *End) { clear(a.out.data[40:60]) },
		"future epoch":      func(a, b *End) { b.epoch-- },
		"a frame went lost": func(_, b *End) { b.received = 5 },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, Config{Capacity: 1024})
			if err := a.Send(Frame{Target: "rank", Body: bytes.Repeat([]byte{7}, 50)}); err != nil {
				t.Fatal(err)
			}
			damage(a, b)
			_, err := b.Receive()
			var link *Error
			if !errors.Is(err, ErrCorrupt) || !errors.As(err, &link) || link.Link != "supervisor -> rank 3" {
				t.Fatalf("error is %v, want ErrCorrupt naming the link", err)
			}
		})
	}
}

func TestInjectedFaultsOnTheWayAreNoticed(t *testing.T) {
	for _, verb := range []string{"drop", "duplicate", "reorder", "flip", "tear", "stale"} {
		t.Run(verb, func(t *testing.T) {
			a, b := pair(t, Config{})
			script, err := faults.Parse("at op 3 "+verb+" at link.send rank=0", 1)
			if err != nil {
				t.Fatal(err)
			}
			a.Arm(faults.NewInjector(script, 0))
			for i := range 5 {
				if err := a.Send(Frame{Target: "rank", Type: uint16(i), Body: []byte("body")}); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 5 {
				f, err := b.Receive()
				if errors.Is(err, ErrCorrupt) {
					if i < 2 {
						t.Fatalf("frame %d: %v", i+1, err)
					}
					return // a lost, doubled or damaged message never looks like a good one
				}
				if err != nil || f.Type != uint16(i) {
					t.Fatalf("frame %d arrived as %+v, %v", i+1, f, err)
				}
			}
			t.Fatal("nobody noticed")
		})
	}
}

func TestCloseEndsBothCalls(t *testing.T) {
	a, _ := pair(t, Config{Capacity: 1024, SendTimeout: time.Minute})
	for a.out.write(make([]byte, 100)) {
	}
	errs := make(chan error, 2)
	go func() { _, err := a.Receive(); errs <- err }()
	go func() { errs <- a.Send(Frame{Target: "rank", Body: make([]byte, 200)}) }()
	time.Sleep(10 * time.Millisecond)
	a.Close()
	for range 2 {
		select {
		case err := <-errs:
			if !errors.Is(err, ErrClosed) {
				t.Errorf("error is %v, want ErrClosed", err)
			}
		case <-time.After(2 * time.Minute):
			t.Fatal("a call hangs")
		}
	}
}

func FuzzParseFrame(f *testing.F) {
	frame, err := appendFrame(nil, &Frame{Epoch: 1, Seq: 2, Type: 3, Target: "rank", Sender: "group", Body: []byte("body")})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(frame)
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, err := parseFrame(b); err == nil {
			again, err := appendFrame(nil, &got)
			if err != nil || !bytes.Equal(again, b) {
				t.Fatalf("a frame that parses encodes to %x, %v, want %x", again, err, b)
			}
		}
	})
}

// FuzzRing reads whatever bytes lie in the ring.
func FuzzRing(f *testing.F) {
	f.Add([]byte{24, 0, 0, 0}, uint64(24))
	f.Fuzz(func(t *testing.T, data []byte, head uint64) {
		a, b := pair(t, Config{Capacity: 1024})
		copy(a.out.data, data)
		a.out.head.Store(head)
		for range 100 {
			if _, ok, err := b.Poll(); err != nil || !ok {
				return
			}
		}
	})
}
