package checkpoint

import (
	"bytes"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/octet-run/octet/kernels"
	"golang.org/x/sys/unix"
)

// cuts are three ranks' columns of a matrix of 96: a wide slice, all that is left,
// and nothing.
var cuts = [][2]int{{0, 64}, {64, 96}, {96, 96}}

const (
	limitRows, limitCols = 2048, 96
	limitTensors         = 6
	limitRow             = limitCols * 4
)

func limitFolder(t *testing.T) (string, map[string][]byte) {
	dir := t.TempDir()
	var entries []stored
	for i := range limitTensors {
		entries = append(entries, stored{string(rune('a' + i)), "F32", []int{limitRows, limitCols}, 4})
	}
	file, payload := build(entries, 0)
	writeFile(t, dir, singleName, file)
	return dir, payload
}

// loadCut takes one rank's columns of every tensor.
func loadCut(t *testing.T, f *Files, lo, hi int, cfg LoadConfig) (*Loader, []kernels.Tensor) {
	t.Helper()
	l := f.NewLoader(cfg)
	var parts []kernels.Tensor
	for i := range limitTensors {
		parts = append(parts, l.Take(Slice{
			Tensor: string(rune('a' + i)), Rows: limitRows, Cols: limitCols, Axis: ByColumns, Lo: lo, Hi: hi, Split: true,
		}, kernels.F32))
	}
	if _, err := l.Finish(func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	return l, parts
}

// TestLimitBoundsWhatIsHeld loads under limits from less than a row to more than
// the file: the parts are right, no more is held than the limit, and every rank
// meets the others equally often, whatever its slice.
func TestLimitBoundsWhatIsHeld(t *testing.T) {
	dir, payload := limitFolder(t)
	f := open(t, dir)
	const whole = limitTensors * limitRows * limitRow
	for _, limit := range []int64{1, limitRow, 10 * limitRow, limitRows*limitRow + 1, whole / 2, whole, 2 * whole} {
		var meetings [3]int
		var joined [limitTensors][limitRows][]byte
		for rank, cut := range cuts {
			cfg := LoadConfig{Limit: limit}
			cfg.Meet = func() error { meetings[rank]++; return nil }
			l, parts := loadCut(t, f, cut[0], cut[1], cfg)
			if l.behind.bytes != 0 {
				t.Fatalf("limit %d: %d bytes are held after loading", limit, l.behind.bytes)
			}
			for i, p := range parts {
				for r := range limitRows {
					joined[i][r] = append(joined[i][r], p.ByteRow(r)...)
				}
			}
		}
		for i := range joined {
			if name := string(rune('a' + i)); !bytes.Equal(bytes.Join(joined[i][:], nil), payload[name]) {
				t.Fatalf("limit %d: parts of %s do not make the whole", limit, name)
			}
		}
		least := (whole + max(limit, limitRow) - 1) / max(limit, limitRow)
		if meetings[0] < int(least) || meetings[1] != meetings[0] || meetings[2] != meetings[0] {
			t.Errorf("limit %d: ranks met %v times, expected all alike and at least %d", limit, meetings, least)
		}
	}
}

// TestLimitHoldsNoMore counts, at every meeting, the file's pages in the page cache.
func TestLimitHoldsNoMore(t *testing.T) {
	dir, _ := limitFolder(t)
	f := open(t, dir)
	file := f.shards[0]
	if err := file.file.Sync(); err != nil { // pages to be written stay
		t.Fatal(err)
	}
	if err := unix.Fadvise(int(file.file.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	// The header is mapped, and what the kernel mapped around it.
	const pages = limitTensors * limitRows * limitRow / 4096
	base := resident(t, file)
	if base > pages/2 {
		t.Skipf("the file system of %s keeps %d of %d pages", filepath.Dir(dir), base, pages)
	}
	if err := unix.Fadvise(int(file.file.Fd()), 0, 0, unix.FADV_RANDOM); err != nil { // no reading ahead
		t.Fatal(err)
	}
	const limit = limitRows * limitRow
	most := base + limit/unix.Getpagesize() + 2*limitTensors // the ends of a window stay
	met := 0
	loadCut(t, f, 0, 64, LoadConfig{Limit: limit, Meet: func() error {
		met++
		if n := resident(t, file); n > most {
			t.Errorf("meeting %d: %d pages are in the page cache, expected at most %d", met, n, most)
		}
		return nil
	}})
	if n := resident(t, file); n > base+2*limitTensors {
		t.Errorf("%d pages are in the page cache after loading", n)
	}
	loadCut(t, f, 0, 64, LoadConfig{}) // without a limit the pages stay
	if n := resident(t, file); n < limitTensors*limit/unix.Getpagesize() {
		t.Errorf("only %d pages are in the page cache after loading without a limit", n)
	}
}

// resident is how many pages of a file are in the page cache.
func resident(t *testing.T, s *shard) int {
	t.Helper()
	pages := make([]byte, (len(s.data)+unix.Getpagesize()-1)/unix.Getpagesize())
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&s.data[0])), uintptr(len(s.data)), uintptr(unsafe.Pointer(&pages[0])))
	if errno != 0 {
		t.Fatal(errno)
	}
	n := 0
	for _, p := range pages {
		n += int(p & 1)
	}
	return n
}
