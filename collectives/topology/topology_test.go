package topology

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// tree is a made-up sysfs: path to content.
type tree map[string]string

func (files tree) write(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for path, content := range files {
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func (files tree) device(folder, class, vendor, node, width string) {
	for name, content := range map[string]string{
		"class": class, "vendor": vendor, "device": "0x2bb1", "numa_node": node,
		"current_link_speed": "2.5 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe",
		"current_link_width": width, "max_link_width": "16",
	} {
		files[folder+"/"+name] = content + "\n"
	}
}

// twoSockets has GPU 0 and 1 below one switch of node 0, GPU 2 on a root port of
// its own there, GPU 3 on node 1 with a narrow link, and a disk to be left out.
func twoSockets() tree {
	files := tree{
		"devices/system/node/node0/cpulist":  "0-3\n",
		"devices/system/node/node0/distance": "10 21\n",
		"devices/system/node/node0/meminfo":  "Node 0 MemTotal:       1048576 kB\nNode 0 MemFree: 1 kB\n",
		"devices/system/node/node1/cpulist":  "4-7\n",
		"devices/system/node/node1/distance": "21 10\n",
		"kernel/iommu_groups/0/type":         "identity\n",
		"kernel/iommu_groups/1/type":         "DMA-FQ\n",
	}
	const bridge, display, disk, nvidia, other = "0x060400", "0x030200", "0x010802", "0x10de", "0x1000"
	a := "devices/pci0000:00/0000:00:01.0"
	files.device(a, bridge, other, "0", "16")
	files.device(a+"/0000:01:00.0", bridge, other, "0", "16")
	files.device(a+"/0000:01:00.0/0000:02:00.0", bridge, other, "0", "16")
	files.device(a+"/0000:01:00.0/0000:02:00.0/0000:03:00.0", display, nvidia, "0", "16")
	files.device(a+"/0000:01:00.0/0000:02:01.0", bridge, other, "0", "16")
	files.device(a+"/0000:01:00.0/0000:02:01.0/0000:04:00.0", display, nvidia, "0", "16")
	files.device("devices/pci0000:00/0000:00:02.0", bridge, other, "0", "16")
	files.device("devices/pci0000:00/0000:00:02.0/0000:05:00.0", display, nvidia, "0", "16")
	files.device("devices/pci0000:00/0000:00:03.0", disk, other, "0", "4")
	files.device("devices/pci0000:80/0000:80:01.0", bridge, other, "1", "16")
	files.device("devices/pci0000:80/0000:80:01.0/0000:81:00.0", display, nvidia, "1", "8")
	return files
}

func discover(t *testing.T, files tree) *Box {
	t.Helper()
	box, err := Discover(files.write(t))
	if err != nil {
		t.Fatal(err)
	}
	return box
}

func TestDiscoverReadsNodesTreeAndLinks(t *testing.T) {
	box := discover(t, twoSockets())
	if len(box.Nodes) != 2 || box.Nodes[1].CPUs.String() != "4-7" || box.Nodes[0].MemoryBytes != 1<<30 {
		t.Errorf("nodes are %+v", box.Nodes)
	}
	var addresses []string
	for _, gpu := range box.GPUs() {
		addresses = append(addresses, gpu.Address)
	}
	want := []string{"0000:03:00.0", "0000:04:00.0", "0000:05:00.0", "0000:81:00.0"}
	if !slices.Equal(addresses, want) {
		t.Errorf("GPUs are %v, want %v", addresses, want)
	}
	if !box.GPUs()[3].Link.Degraded() || box.GPUs()[0].Link.Degraded() {
		t.Error("the narrow link alone is degraded")
	}
	if box.IOMMU != "translated" {
		t.Errorf("IOMMU is %q, want translated", box.IOMMU)
	}
	if got := box.Islands(); !reflect.DeepEqual(got, [][]int{{0, 1, 2}, {3}}) {
		t.Errorf("islands are %v", got)
	}
}

func TestRoutesNameTheNearestCommonPlace(t *testing.T) {
	box := discover(t, twoSockets())
	box.NVLinks = []NVLink{{A: 1, B: 3, Links: 4}}
	for _, c := range []struct {
		i, j int
		want Route
	}{{0, 0, Self}, {0, 1, OneSwitch}, {0, 2, HostLocal}, {0, 3, CrossNode}, {3, 1, ByNVLink}} {
		if got := box.RouteOf(c.i, c.j); got != c.want {
			t.Errorf("route from %d to %d is %s, want %s", c.i, c.j, got, c.want)
		}
	}
}

func TestABoxSurvivesItsJSON(t *testing.T) {
	box := discover(t, twoSockets())
	var buf bytes.Buffer
	if err := box.Write(&buf); err != nil {
		t.Fatal(err)
	}
	again, err := Parse(buf.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(box, again) {
		t.Errorf("read back %+v, wrote %+v", again, box)
	}
}

func TestBadBoxesAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{`:                        "not a box",
		`{"version":9}`:            "version is 9",
		`{"version":1,"nodes":[]}`: "no NUMA node",
		`{"version":1,"nodes":[{"id":0,"cpus":"0"},{"id":0,"cpus":"1"}]}`:                                                               "twice",
		`{"version":1,"nodes":[{"id":0,"cpus":"3-1"}]}`:                                                                                 "list of processors",
		`{"version":1,"nodes":[{"id":0,"cpus":"0"}],"pci":[{"address":"a","kind":"gpu","node":5}]}`:                                     "node 5",
		`{"version":1,"nodes":[{"id":0,"cpus":"0"}],"pci":[{"address":"a","kind":"gpu","node":0}],"nvlinks":[{"a":0,"b":1,"links":1}]}`: "NVLink",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", text, err, want)
		}
	}
}

func TestAssignSharesANodesProcessorsAmongItsRanks(t *testing.T) {
	box := discover(t, twoSockets())
	all, _ := ParseCPUs("0-7")
	got := box.Assign(4, all)
	want := []Binding{{0, CPUs{0}}, {0, CPUs{1}}, {0, CPUs{2, 3}}, {1, CPUs{4, 5, 6, 7}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("bindings are %v, want %v", got, want)
	}
	oversubscribed := (&Box{Nodes: []Node{{CPUs: CPUs{0, 1}}}}).Assign(8, CPUs{0, 1})
	for rank, b := range oversubscribed {
		if !slices.Equal(b.CPUs, CPUs{0, 1}) {
			t.Errorf("rank %d of 8 on 2 processors is bound to %s", rank, b.CPUs)
		}
	}
}

func TestRanksGoToTheNodesOfTheirGPUs(t *testing.T) {
	box := discover(t, twoSockets())
	all, _ := ParseCPUs("0-7")
	var addresses []string
	want := map[string]int{"0000:ff:00.0": -1}
	for _, gpu := range box.GPUs() {
		addresses = append([]string{strings.ToUpper(gpu.Address)}, addresses...)
		want[strings.ToUpper(gpu.Address)] = gpu.Node
	}
	addresses = append(addresses, "0000:ff:00.0")
	bindings := box.AssignGPUs(addresses, all)
	for rank, b := range bindings {
		if b.Node != want[addresses[rank]] || len(b.CPUs) == 0 {
			t.Errorf("rank %d on %s is bound to node %d, processors %v", rank, addresses[rank], b.Node, b.CPUs)
		}
	}
	if last := bindings[len(bindings)-1]; !slices.Equal(last.CPUs, all) {
		t.Errorf("a GPU that is nowhere has processors %v", last.CPUs)
	}
}

func TestACSIsFoundInTheExtendedConfiguration(t *testing.T) {
	config := make([]byte, 4096)
	binary.LittleEndian.PutUint32(config[0x100:], 0x0001|0x140<<20) // first capability, next at 0x140
	binary.LittleEndian.PutUint32(config[0x140:], acsCapability)
	path := filepath.Join(t.TempDir(), "config")
	for _, c := range []struct {
		control uint16
		want    string
	}{{0, "off"}, {0x000c, "redirects"}} {
		binary.LittleEndian.PutUint16(config[0x146:], c.control)
		if err := os.WriteFile(path, config, 0o644); err != nil {
			t.Fatal(err)
		}
		if got := readACS(path); got != c.want {
			t.Errorf("control %#x reads as %q, want %q", c.control, got, c.want)
		}
	}
	if got := readACS(filepath.Join(t.TempDir(), "none")); got != "unknown" {
		t.Errorf("an unreadable configuration reads as %q", got)
	}
}

func TestThisProcessHasABinding(t *testing.T) {
	cpus, nodes, err := Bound(os.Getpid())
	if err != nil || len(cpus) == 0 || len(nodes) == 0 {
		t.Fatalf("bound to CPUs %v, nodes %v: %v", cpus, nodes, err)
	}
}

func TestDrawShowsEveryGPU(t *testing.T) {
	var buf bytes.Buffer
	discover(t, twoSockets()).Draw(&buf)
	for _, want := range []string{"GPU 0", "GPU 3", "(could be x16)", "PIX", "SYS", "NUMA node 1"} {
		if !strings.Contains(buf.String(), want) {
			t.Errorf("the drawing lacks %q:\n%s", want, buf.String())
		}
	}
}

func FuzzParseCPUs(f *testing.F) {
	f.Add("0-3,8")
	f.Fuzz(func(t *testing.T, text string) {
		set, err := ParseCPUs(text)
		if err != nil {
			return
		}
		again, err := ParseCPUs(set.String())
		if err != nil || !slices.Equal(set, again) {
			t.Fatalf("%q is %v, written %q, read %v (%v)", text, set, set, again, err)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"version":1,"name":"x","nodes":[{"id":0,"cpus":"0-1"}],"pci":[],"iommu":"off"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if box, err := Parse(data); err == nil {
			box.Draw(&bytes.Buffer{})
		}
	})
}
