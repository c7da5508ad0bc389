package topology

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	nvidiaVendor  = "0x10de"
	displayClass  = "0x03"   // VGA and 3D controllers
	bridgeClass   = "0x0604" // PCI-to-PCI
	maxPCIDepth   = 32
	acsCapability = 0x000d
	acsRedirect   = 0x000c // P2P request and completion redirect
)

// readPCI walks the folders of the PCI tree, which mirror it, and keeps what
// leads to a GPU. It follows no symbolic link, so a copy of a tree works too.
func readPCI(sysfs string) ([]Device, error) {
	base := filepath.Join(sysfs, "devices")
	entries, err := os.ReadDir(base)
	if err != nil {
		return nil, err
	}
	var roots []Device
	for _, e := range entries {
		if !isHostName(e.Name()) {
			continue
		}
		folder := filepath.Join(base, e.Name())
		host := Device{Address: e.Name(), Kind: HostBridge, Node: -1, Children: childDevices(folder, 0)}
		if len(host.Children) == 0 {
			continue
		}
		host.Node = host.Children[0].Node
		roots = append(roots, host)
	}
	return roots, nil
}

func childDevices(folder string, depth int) []Device {
	entries, err := os.ReadDir(folder)
	if err != nil || depth > maxPCIDepth {
		return nil
	}
	var children []Device
	for _, e := range entries {
		if !isDeviceName(e.Name()) {
			continue
		}
		if d, keep := readDevice(filepath.Join(folder, e.Name()), depth); keep {
			children = append(children, d)
		}
	}
	return children
}

func readDevice(folder string, depth int) (d Device, keep bool) {
	class, vendor := readText(folder, "class"), readText(folder, "vendor")
	d = Device{
		Address: filepath.Base(folder),
		Name:    strings.TrimPrefix(vendor, "0x") + ":" + strings.TrimPrefix(readText(folder, "device"), "0x"),
		Node:    -1,
		Link:    readLink(folder),
	}
	if n, err := strconv.Atoi(readText(folder, "numa_node")); err == nil {
		d.Node = n
	}
	switch {
	case strings.HasPrefix(class, displayClass) && vendor == nvidiaVendor:
		d.Kind = GPU
		return d, true
	case strings.HasPrefix(class, bridgeClass):
		d.Kind = SwitchPort
		if depth == 0 {
			d.Kind = RootPort
		}
		d.ACS = readACS(filepath.Join(folder, "config"))
		d.Children = childDevices(folder, depth+1)
		return d, len(d.Children) > 0
	}
	return d, false
}

func readLink(folder string) *Link {
	l := Link{
		GTs: speed(readText(folder, "current_link_speed")), MaxGTs: speed(readText(folder, "max_link_speed")),
	}
	l.Width, _ = strconv.Atoi(readText(folder, "current_link_width"))
	l.MaxWidth, _ = strconv.Atoi(readText(folder, "max_link_width"))
	if l.GTs == 0 || l.Width == 0 {
		return nil
	}
	return &l
}

// speed reads "32.0 GT/s PCIe".
func speed(text string) float64 {
	number, _, _ := strings.Cut(text, " ")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || v < 0 || v > 1000 {
		return 0
	}
	return v
}

// readACS looks for access control services in the extended configuration space,
// which only root may read. Redirection sends peer-to-peer traffic up to the
// root complex.
func readACS(path string) string {
	config, err := os.ReadFile(path)
	if err != nil || len(config) < 4096 {
		return "unknown"
	}
	for offset, hops := 0x100, 0; offset >= 0x100 && offset+8 <= len(config) && hops < 64; hops++ {
		header := binary.LittleEndian.Uint32(config[offset:])
		if header&0xffff == acsCapability {
			if binary.LittleEndian.Uint16(config[offset+6:])&acsRedirect != 0 {
				return "redirects"
			}
			return "off"
		}
		offset = int(header >> 20)
	}
	return "none"
}

// isHostName reports whether a folder is that of a host bridge: pci0000:00.
func isHostName(name string) bool {
	address, found := strings.CutPrefix(name, "pci")
	return found && isAddress(address, 2)
}

// isDeviceName reports whether a folder is that of a device: 0000:00:1f.7.
func isDeviceName(name string) bool {
	address, function, _ := strings.Cut(name, ".")
	return len(function) == 1 && function[0] >= '0' && function[0] <= '7' && isAddress(address, 3)
}

// isAddress reports whether text is domain:bus or domain:bus:device, in lower-case
// hexadecimal. Regular expressions would be compiled at the start of every rank.
func isAddress(text string, parts int) bool {
	fields := strings.Split(text, ":")
	if len(fields) != parts || len(fields[0]) < 4 || len(fields[0]) > 8 {
		return false
	}
	for i, field := range fields {
		if i > 0 && len(field) != 2 || strings.Trim(field, "0123456789abcdef") != "" {
			return false
		}
	}
	return true
}
