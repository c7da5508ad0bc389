package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/octet-run/octet/actors"
	"github.com/octet-run/octet/actors/round"
	"github.com/octet-run/octet/coordinator"
	"github.com/octet-run/octet/model"
)

func newBenchLoad() *cobra.Command {
	var s groupSettings
	var cold bool
	var loads int
	cmd := &cobra.Command{
		Use:   "load",
		Short: "Load a checkpoint on all ranks, beside what the page cache gives",
		Long: "Load a checkpoint on all ranks several times, group after group, and show the fastest beside the fastest of as many\n" +
			"readings of the files. The first loads also find out what memory costs that the machine has yet to find: a virtual\n" +
			"machine may have to ask its host for every page.",
		Example: "  octet bench load --model /var/tmp/big --ranks 8\n" +
			"  octet bench load --model /var/tmp/big --ranks 8 --cold",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if loads < 1 {
				return usagef("--loads must be at least 1, not %d", loads)
			}
			bench, err := benchLoad(cmd.Context(), &s, loads, cold)
			if err != nil {
				return interrupted(cmd.Context(), err)
			}
			return bench.print(cmd)
		},
	}
	s.register(cmd.Flags())
	cmd.Flags().BoolVar(&cold, "cold", false, "drop the checkpoint from the page cache before every load")
	cmd.Flags().IntVar(&loads, "loads", 3, "how often the checkpoint is loaded")
	return cmd
}

// loadRow is what loading cost one rank.
type loadRow struct {
	Rank        int   `json:"rank"`
	BytesMapped int64 `json:"bytes_mapped"` // used in place, in the page cache
	BytesCopied int64 `json:"bytes_copied"` // in memory of its own
	RSSAnon     int64 `json:"rss_anon_bytes"`
	// RSSAnonServed is the same after a request: with caches and scratch memory in use.
	RSSAnonServed int64 `json:"rss_anon_served_bytes"`
	BytesStorage  int64 `json:"bytes_from_storage"`
}

// loadBench is a group's loading, the fastest of several.
type loadBench struct {
	Rows         []loadRow `json:"rows"`
	Seconds      float64   `json:"seconds"`       // from the first rank's first byte to the last rank's last
	StartSeconds float64   `json:"start_seconds"` // with everything around it, until all serve
	Loads        []float64 `json:"loads_seconds"` // each, in turn
	Bytes        int64     `json:"bytes"`         // of all ranks' parts
	FileBytes    int64     `json:"file_bytes"`
	GBPerSecond  float64   `json:"gb_s"`            // file bytes in Seconds
	PageCache    float64   `json:"page_cache_gb_s"` // one reader, pread
	// PagesRead is of the load that read most.
	PagesRead int64 `json:"pages_read_from_storage"`
	FilePages int64 `json:"file_pages"`
}

// benchTokens is how many tokens a rank has served when its memory is looked at again.
const benchTokens = 32

func benchLoad(ctx context.Context, s *groupSettings, loads int, cold bool) (*loadBench, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(s.model, "*.safetensors"))
	if err != nil || len(files) == 0 {
		return nil, errors.Join(err, fmt.Errorf("%s holds no safetensors file", s.model))
	}
	config, err := model.ReadConfig(s.model)
	if err != nil {
		return nil, err
	}
	plans, err := s.checkFiles(&config)
	if err != nil {
		return nil, err
	}
	b := &loadBench{Rows: make([]loadRow, s.ranks)}
	for i, p := range plans {
		b.Rows[i] = loadRow{Rank: i, BytesMapped: p.Bytes() - p.Copied(), BytesCopied: p.Copied()}
		b.Bytes += p.Bytes()
	}
	for range loads {
		if err := b.measureFiles(files, cold); err != nil {
			return nil, err
		}
		if err := b.load(ctx, s, len(b.Loads) == loads-1); err != nil {
			return nil, err
		}
	}
	return b, b.measurePageCache(ctx, files, loads)
}

// measureFiles sums the files' sizes and, for a cold start, drops their pages.
func (b *loadBench) measureFiles(files []string, cold bool) error {
	b.FileBytes, b.FilePages = 0, 0
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		stat, err := f.Stat()
		if err == nil && cold {
			// Pages that are not yet written would stay.
			err = errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		b.FileBytes += stat.Size()
		b.FilePages += (stat.Size() + int64(os.Getpagesize()) - 1) / int64(os.Getpagesize())
	}
	return nil
}

// load starts the group and looks at its processes, the last time after a request
// too.
func (b *loadBench) load(ctx context.Context, s *groupSettings, last bool) error {
	before, err := bytesFromStorage(os.Getpid())
	if err != nil {
		return err
	}
	clock := &loadClock{}
	begin := time.Now()
	r, err := startGroup(ctx, s, startOptions{onEvent: clock.event})
	if err != nil {
		return err
	}
	defer r.stop()
	b.record(clock.seconds(), time.Since(begin).Seconds())
	own, err := bytesFromStorage(os.Getpid())
	if err != nil {
		return err
	}
	read := own - before
	for i, rank := range r.group.Status().Ranks {
		row := &b.Rows[i]
		row.RSSAnon, err = anonymousBytes(rank.PID)
		if err == nil {
			row.BytesStorage, err = bytesFromStorage(rank.PID)
		}
		if err != nil {
			return err
		}
		read += row.BytesStorage
	}
	b.PagesRead = max(b.PagesRead, read/int64(os.Getpagesize()))
	if !last {
		return nil
	}
	if err := b.serve(ctx, r); err != nil {
		return err
	}
	for i, rank := range r.group.Status().Ranks {
		if b.Rows[i].RSSAnonServed, err = anonymousBytes(rank.PID); err != nil {
			return err
		}
	}
	return nil
}

// record notes one load; the fastest counts.
func (b *loadBench) record(load, start float64) {
	b.Loads = append(b.Loads, load)
	if len(b.Loads) == 1 || load < b.Seconds {
		b.Seconds, b.StartSeconds = load, start
		b.GBPerSecond = float64(b.FileBytes) / 1e9 / load
	}
}

// serve runs one request.
func (b *loadBench) serve(ctx context.Context, r *running) error {
	prompt := make([]int32, benchTokens)
	for i := range prompt {
		prompt[i] = int32(i % r.model.Vocab)
	}
	stream, err := r.coordinator.Generate(ctx, coordinator.Request{
		Prompt: prompt, MaxTokens: benchTokens, IgnoreEOS: true, Sampling: round.Sampling{Logprobs: -1},
	})
	if err != nil {
		return err
	}
	defer stream.Close()
	all, err := stream.Collect(ctx)
	if err != nil {
		return err
	}
	return all.Finish.Err
}

// measurePageCache reads the files, which are in the page cache by now, as one
// reader with pread.
func (b *loadBench) measurePageCache(ctx context.Context, files []string, passes int) error {
	buffer := make([]byte, 1<<20)
	pass := func() (int64, error) {
		total := int64(0)
		for _, name := range files {
			n, err := readThrough(ctx, name, buffer)
			if err != nil {
				return total, err
			}
			total += n
		}
		return total, nil
	}
	if _, err := pass(); err != nil { // in case loading left some out
		return err
	}
	for range passes {
		begin := time.Now()
		n, err := pass()
		if err != nil {
			return err
		}
		b.PageCache = max(b.PageCache, float64(n)/1e9/time.Since(begin).Seconds())
	}
	return nil
}

func readThrough(ctx context.Context, name string, buffer []byte) (int64, error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for at := int64(0); ; {
		if err := ctx.Err(); err != nil {
			return at, err
		}
		n, err := f.ReadAt(buffer, at)
		at += int64(n)
		if errors.Is(err, io.EOF) {
			return at, nil
		}
		if err != nil {
			return at, err
		}
	}
}

// loadClock times loading by the group's events.
type loadClock struct {
	mu          sync.Mutex
	first, last time.Time
}

func (c *loadClock) event(e actors.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case e.Kind != actors.RankLoading:
	case c.first.IsZero():
		c.first = e.Time
	case e.Done == e.Total:
		c.last = e.Time
	}
}

func (c *loadClock) seconds() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last.Sub(c.first).Seconds()
}

// anonymousBytes is the resident memory of a process that no file backs.
func anonymousBytes(pid int) (int64, error) {
	kib, err := procField(pid, "status", "RssAnon:")
	return kib << 10, err
}

// bytesFromStorage is what a process made the kernel read from storage, by page
// faults too.
func bytesFromStorage(pid int) (int64, error) { return procField(pid, "io", "read_bytes:") }

func procField(pid int, file, key string) (int64, error) {
	path := fmt.Sprintf("/proc/%d/%s", pid, file)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			var n int64
			_, err := fmt.Sscan(rest, &n)
			return n, err
		}
	}
	return 0, fmt.Errorf("%s has no %s", path, key)
}

func (b *loadBench) print(cmd *cobra.Command) error {
	if wantJSON(cmd) {
		return printJSON(cmd, b)
	}
	w := cmd.OutOrStdout()
	const mib = 1 << 20
	for _, r := range b.Rows {
		fmt.Fprintf(w, "rank %d  mapped %6d MiB  copied %5d MiB  anonymous memory %5d MiB, %5d MiB after %d tokens\n",
			r.Rank, r.BytesMapped/mib, r.BytesCopied/mib, r.RSSAnon/mib, r.RSSAnonServed/mib, benchTokens)
	}
	_, err := fmt.Fprintf(w, "loaded %.2f GB in %.2f s, the fastest of %.2f: %.2f GB/s; the page cache gives %.2f GB/s; from storage %d of %d pages; start to serving %.2f s\n",
		float64(b.FileBytes)/1e9, b.Seconds, b.Loads, b.GBPerSecond, b.PageCache, b.PagesRead, b.FilePages, b.StartSeconds)
	return err
}
