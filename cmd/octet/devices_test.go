package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/octet-run/octet/kernels/cuda"
)

func TestTheListOfGPUsIsUnderstoodOrRefusedInWords(t *testing.T) {
	good := `{"gpus":[{"pci":"0000:41:00.0","name":"NVIDIA H200","memory_bytes":150000000000,"Major":9,"Minor":0}]}`
	for _, c := range []struct{ printed, refused string }{
		{good + "\n", ""},
		{`{"gpus":null,"error":"cuda: there is no driver"}`, "cuda: there is no driver"},
		{`{"gpus":[]}`, "no NVIDIA GPU"},
		{`{"gpus":[{"pci":"0000:01:00.0","name":"Tesla V100","Major":7}]}`, "compute capability 8.0, Tesla V100 at 0000:01:00.0 has 7.0"},
		{`Segmentation fault`, "cannot be read"},
	} {
		gpus, err := parseInventory([]byte(c.printed))
		switch {
		case c.refused == "" && (err != nil || len(gpus) != 1 || gpus[0].PCI != "0000:41:00.0" || gpus[0].Major != 9):
			t.Errorf("%s: %+v, %v", c.printed, gpus, err)
		case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
			t.Errorf("%s: %v", c.printed, err)
		}
	}
}

func TestRanksShareGPUsAndTheirMemory(t *testing.T) {
	gpu := func(pci string) cuda.DeviceInfo {
		return cuda.DeviceInfo{PCI: pci, Name: "H200", MemoryBytes: 150e9, Major: 9}
	}
	s := groupSettings{ranks: 3, gpus: []cuda.DeviceInfo{gpu("a"), gpu("b")}}
	if got := s.addresses(); !slices.Equal(got, []string{"a", "b", "a"}) {
		t.Errorf("the ranks are on %v", got)
	}
	// Ranks 0 and 2 have half of a GPU each.
	got, err := s.deviceBudget([]int64{10e9, 10e9, 20e9})
	if want := 3 * (150_000_000_000*9/10/2 - deviceReserve - 20e9); err != nil || got != int(want) {
		t.Errorf("the budget is %d, want %d: %v", got, int(want), err)
	}
	if _, err := s.deviceBudget([]int64{10e9, 200e9, 10e9}); err == nil || !strings.Contains(err.Error(), "rank 1's weights take 200.0 GB") {
		t.Errorf("weights that do not fit: %v", err)
	}
	if (&groupSettings{ranks: 2}).addresses() != nil {
		t.Error("ranks on a CPU have GPUs")
	}
}
