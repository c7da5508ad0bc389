//go:build cuda

package cuda

import (
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unsafe"
)

// paramBytes maps kernels, by prefix of their name, to what Go passes them. The
// driver refuses a launch whose parameters have another size.
var paramBytes = []struct {
	prefix string
	bytes  uintptr
}{
	{"all_reduce_one_shot_norm", unsafe.Sizeof(fusedCall{})},
	{"all_reduce_two_shot_norm", unsafe.Sizeof(fusedCall{})},
	{"all_reduce_", unsafe.Sizeof(plainCall{})},
	{"embed", unsafe.Sizeof(embedParams{})},
	{"rms_norm", unsafe.Sizeof(normParams{})},
	{"add_rows", unsafe.Sizeof([3]matrix2D{})},
	{"swiglu", unsafe.Sizeof([3]matrix2D{})},
	{"copy_rows", unsafe.Sizeof(copyParams{})},
	{"store_rows", unsafe.Sizeof([2]copyParams{})},
	{"move_rows", unsafe.Sizeof(copyParams{})},
	{"rotate", unsafe.Sizeof(rotateParams{})},
	{"top_k", unsafe.Sizeof(topKParams{})},
	{"log_sum_exp", unsafe.Sizeof([2]matrix2D{})},
	{"route", unsafe.Sizeof(routeParams{})},
	{"matmul_stream_", unsafe.Sizeof(jointParams{})},
	{"matmul_", unsafe.Sizeof(productParams{})},
	{"attend_", unsafe.Sizeof(attentionParams{})},
	{"merge_spans", unsafe.Sizeof(attentionParams{})},
	{"read_stream", unsafe.Sizeof(readCall{})},
	{"experts_", unsafe.Sizeof(expertParams{})},
}

var (
	entry = regexp.MustCompile(`(?s)\.entry (\w+)\(\s*(.*?)\)`)
	param = regexp.MustCompile(`\.param (?:\.align (\d+) \.b8 \w+\[(\d+)\]|\.[ubf](\d+))`)
)

// entrySize adds up the parameters of a PTX entry.
func entrySize(declared string) uintptr {
	var size int
	for _, m := range param.FindAllStringSubmatch(declared, -1) {
		align, bytes := 0, 0
		if m[3] != "" {
			bits, _ := strconv.Atoi(m[3])
			align, bytes = bits/8, bits/8
		} else {
			align, _ = strconv.Atoi(m[1])
			bytes, _ = strconv.Atoi(m[2])
		}
		size = (size+align-1)/align*align + bytes
	}
	return uintptr(size)
}

func TestKernelsTakeWhatGoPasses(t *testing.T) {
	files, err := fs.Glob(ptx, "ptx/*.ptx")
	if err != nil || len(files) == 0 {
		t.Fatalf("no embedded kernels: %v", err)
	}
	for _, file := range files {
		text, err := ptx.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range entry.FindAllStringSubmatch(string(text), -1) {
			checkEntry(t, file, m[1], entrySize(m[2]))
		}
	}
}

func checkEntry(t *testing.T, file, name string, size uintptr) {
	t.Helper()
	for _, p := range paramBytes {
		if strings.HasPrefix(name, p.prefix) {
			if size != p.bytes {
				t.Errorf("%s: %s takes %d bytes of parameters, Go passes %d", file, name, size, p.bytes)
			}
			return
		}
	}
	t.Errorf("%s: no Go code is known to launch %s", file, name)
}

// TestKernelsThatStartEarlyWait: one that did not would read what the kernel in
// front has yet to write.
func TestKernelsThatStartEarlyWait(t *testing.T) {
	text, err := ptx.ReadFile("ptx/matmul_sm90.ptx")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, body := range strings.Split(string(text), ".entry ")[1:] {
		name, _, _ := strings.Cut(body, "(")
		if !strings.HasPrefix(name, "matmul_stream_") {
			continue
		}
		found++
		if !strings.Contains(body, "griddepcontrol.wait") {
			t.Errorf("%s starts early and does not wait", name)
		}
	}
	if found == 0 {
		t.Error("no kernel that starts early")
	}
}
