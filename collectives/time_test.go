package collectives

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/octet-run/octet/collectives/transport"
	"github.com/octet-run/octet/internal/testgroup"
)

// timeRole times all-reduces of hot slabs and prints rank 0's medians.
func timeRole(child testgroup.Child) error {
	runtime.LockOSThread()
	g, err := transport.Open(child.Files[0])
	if err != nil {
		return err
	}
	defer g.Close()
	dedicated := child.Args[0] == "direct"
	link, err := g.Attach(child.Rank, transport.Polling{Dedicated: dedicated})
	if err != nil {
		return err
	}
	c, err := New(link, Config{Dedicated: dedicated})
	if err != nil {
		return err
	}
	for _, arg := range child.Args[1:] {
		bytes, err := strconv.Atoi(arg)
		if err != nil {
			return err
		}
		n := bytes / 4
		iterations := 400
		if bytes > 100000 {
			iterations = 60
		}
		took := make([]time.Duration, iterations)
		for i := range took {
			slab, err := c.Partial(1, n)
			if err != nil {
				return err
			}
			begin := time.Now()
			if _, err := c.AllReduce(slab, 1, n); err != nil {
				return err
			}
			took[i] = time.Since(begin)
		}
		if child.Rank == 0 {
			slices.Sort(took)
			fmt.Printf("%d bytes: median %v p99 %v\n", bytes, took[len(took)/2], took[len(took)*99/100])
		}
	}
	return nil
}

func BenchmarkAllReduceProcesses(b *testing.B) {
	for _, ranks := range []int{2, 8} {
		for name := range configs {
			b.Run(fmt.Sprintf("%d/%s", ranks, name), func(b *testing.B) {
				g := newGroup(b, transport.Config{Ranks: ranks, MaxRows: 1, MaxWidth: 1 << 18})
				for range b.N {
					procs := testgroup.Start(b, "time", ranks, []*os.File{g.File()}, name, "1024", "8192", "65536", "262144", "1048576")
					exits := procs.Wait(limit)
					b.Log(exits[0].Output)
					g.Reset(g.Epoch()+1, 0)
				}
			})
		}
	}
}
