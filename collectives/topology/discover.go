package topology

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Discover reads the box from a sysfs tree, "/sys" or a copy of one. What the
// NVIDIA driver knows (NVLink, names) is added for the running machine alone.
func Discover(sysfs string) (*Box, error) {
	if info, err := os.Stat(filepath.Join(sysfs, "devices")); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("%s is not a sysfs tree: it has no folder devices", sysfs)
	}
	box := &Box{Version: BoxVersion, Name: "this", IOMMU: iommuMode(sysfs)}
	var err error
	if box.Nodes, err = readNodes(sysfs); err != nil {
		return nil, err
	}
	if box.Roots, err = readPCI(sysfs); err != nil {
		return nil, err
	}
	if sysfs == "/sys" {
		box.CPU = processorModel()
		addDriverFacts(box)
	}
	return box, box.validate()
}

// readNodes lists the NUMA nodes. A kernel without NUMA has no node folder; its
// processors are then one node.
func readNodes(sysfs string) ([]Node, error) {
	folders, err := filepath.Glob(filepath.Join(sysfs, "devices/system/node/node[0-9]*"))
	if err != nil {
		return nil, err
	}
	var nodes []Node
	for _, folder := range folders {
		id, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(folder), "node"))
		if err != nil {
			continue
		}
		cpus, err := ParseCPUs(readText(folder, "cpulist"))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", folder, err)
		}
		node := Node{ID: id, CPUs: cpus, MemoryBytes: nodeMemory(folder)}
		for _, field := range strings.Fields(readText(folder, "distance")) {
			if d, err := strconv.Atoi(field); err == nil {
				node.Distances = append(node.Distances, d)
			}
		}
		nodes = append(nodes, node)
	}
	if len(nodes) == 0 {
		cpus, err := ParseCPUs(readText(sysfs, "devices/system/cpu/online"))
		if err != nil {
			return nil, err
		}
		nodes = []Node{{CPUs: cpus}}
	}
	slices.SortFunc(nodes, func(a, b Node) int { return a.ID - b.ID })
	return nodes, nil
}

// nodeMemory finds "Node 0 MemTotal: 123 kB".
func nodeMemory(folder string) int64 {
	for line := range strings.Lines(readText(folder, "meminfo")) {
		fields := strings.Fields(line)
		if len(fields) >= 4 && fields[2] == "MemTotal:" {
			kib, _ := strconv.ParseInt(fields[3], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// iommuMode reads what the default domains of the IOMMU groups do. DMA domains
// translate every access: peer-to-peer then goes through the root complex, slowly
// or not at all.
func iommuMode(sysfs string) string {
	types, _ := filepath.Glob(filepath.Join(sysfs, "kernel/iommu_groups/*/type"))
	if len(types) == 0 {
		if _, err := os.Stat(filepath.Join(sysfs, "kernel")); err != nil {
			return "unknown"
		}
		return "off"
	}
	mode := "passthrough"
	for _, path := range types {
		if strings.HasPrefix(readText(path), "DMA") {
			mode = "translated"
		}
	}
	return mode
}

func processorModel() string {
	for line := range strings.Lines(readText("/proc/cpuinfo")) {
		if key, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// readText is a small file without the white space around it, or "" where there
// is none: sysfs leaves out what it does not know.
func readText(path ...string) string {
	data, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
