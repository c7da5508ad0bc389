package topology

import (
	"fmt"
	"io"
	"strings"
)

// Draw writes the box as a tree for people.
func (b *Box) Draw(w io.Writer) {
	fmt.Fprintf(w, "%s", b.Name)
	if b.CPU != "" {
		fmt.Fprintf(w, "  %s", b.CPU)
	}
	fmt.Fprintf(w, "  IOMMU %s\n", b.IOMMU)
	index := map[string]int{}
	for i, gpu := range b.GPUs() {
		index[gpu.Address] = i
	}
	var floating []Device
	for i, node := range b.Nodes {
		var below []Device
		for _, root := range b.Roots {
			if root.Node == node.ID {
				below = append(below, root)
			}
		}
		fmt.Fprintf(w, "%s NUMA node %d  CPUs %s%s\n", branch(i == len(b.Nodes)-1 && !b.hasFloating()), node.ID, node.CPUs, memoryText(node.MemoryBytes))
		stem := "│  "
		if i == len(b.Nodes)-1 && !b.hasFloating() {
			stem = "   "
		}
		drawDevices(w, below, stem, index)
	}
	for _, root := range b.Roots {
		if root.Node < 0 {
			floating = append(floating, root)
		}
	}
	if len(floating) > 0 {
		fmt.Fprintln(w, "└─ NUMA node unknown (firmware does not say)")
		drawDevices(w, floating, "   ", index)
	}
	b.drawRoutes(w)
}

func (b *Box) hasFloating() bool {
	for _, root := range b.Roots {
		if root.Node < 0 {
			return true
		}
	}
	return false
}

func drawDevices(w io.Writer, devices []Device, stem string, index map[string]int) {
	for i, d := range devices {
		last := i == len(devices)-1
		fmt.Fprintf(w, "%s%s %s\n", stem, branch(last), describe(d, index))
		next := stem + "│  "
		if last {
			next = stem + "   "
		}
		drawDevices(w, d.Children, next, index)
	}
}

func describe(d Device, index map[string]int) string {
	parts := []string{d.Kind, d.Address}
	if d.Kind == GPU {
		parts[0] = fmt.Sprintf("GPU %d", index[d.Address])
	}
	if d.Name != "" && d.Kind != HostBridge {
		parts = append(parts, d.Name)
	}
	if d.Link != nil {
		parts = append(parts, fmt.Sprintf("%g GT/s x%d", d.Link.GTs, d.Link.Width))
		if d.Link.Degraded() {
			parts = append(parts, fmt.Sprintf("(could be x%d)", d.Link.MaxWidth))
		} else if d.Link.GTs < d.Link.MaxGTs {
			parts = append(parts, fmt.Sprintf("(up to %g GT/s)", d.Link.MaxGTs))
		}
	}
	if d.ACS == "redirects" {
		parts = append(parts, "ACS redirects peer traffic")
	}
	return strings.Join(parts, " ")
}

func (b *Box) drawRoutes(w io.Writer) {
	n := len(b.GPUs())
	if n < 2 {
		return
	}
	fmt.Fprintf(w, "\nroute ")
	for j := range n {
		fmt.Fprintf(w, "%6d", j)
	}
	fmt.Fprintln(w)
	for i := range n {
		fmt.Fprintf(w, "%6d", i)
		for j := range n {
			fmt.Fprintf(w, "%6s", b.RouteOf(i, j))
		}
		fmt.Fprintln(w)
	}
}

func branch(last bool) string {
	if last {
		return "└─"
	}
	return "├─"
}

func memoryText(bytes int64) string {
	if bytes == 0 {
		return ""
	}
	return fmt.Sprintf("  %.0f GiB", float64(bytes)/(1<<30))
}
