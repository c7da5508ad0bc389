package topology

import (
	"regexp"
	"testing"
)

func FuzzFoldersOfThePCITree(f *testing.F) {
	host := regexp.MustCompile(`^pci[0-9a-f]{4,8}:[0-9a-f]{2}$`)
	device := regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)
	for _, name := range []string{
		"", "pci", "pci0000:00", "pci10000:e0", "pci000:00", "pci123456789:00", "pci0000:0", "pci0000:0g", "pci0000:00:00", "PCI0000:00",
		"0000:00:1f.7", "10000:01:00.0", "0000:00:1f.8", "0000:00:1f", "0000:00:1f.", "0000:00:1f.07", "0000:00:1F.7", "0000:00.7",
		"000:00:1f.7", "0000:00:1f.7.0", "00g0:00:1f.7", "0000:00:00:1f.7", ".7", "::.7", "pci:00", "0000:0x:1f.7", "pci0000:00\n", "0000:00:1f.7\n",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if got, want := isHostName(name), host.MatchString(name); got != want {
			t.Errorf("isHostName(%q) = %v", name, got)
		}
		if got, want := isDeviceName(name), device.MatchString(name); got != want {
			t.Errorf("isDeviceName(%q) = %v", name, got)
		}
	})
}
