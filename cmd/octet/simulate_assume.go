package main

import (
	"strings"

	"github.com/octet-run/octet/collectives/topology"
	"github.com/octet-run/octet/deploy/boxes"
)

// Of a link's rate, what one flow of stores was measured to get; and of that, what a
// GPU gets that drives several peers.
const (
	flowShare       = 53.0 / 63
	concurrentShare = 26.0 / 53
)

// assumeFabric gives a box whose rates nobody measured those of its kind: links by
// their speed, all else as on the boxes that we know. It says what it assumed.
func assumeFabric(box *topology.Box) (string, error) {
	if len(box.GPUs()) == 0 {
		like, err := boxes.Load("this")
		if err != nil {
			return "", err
		}
		box.Fabric = like.Fabric
		box.Fabric.Fitted, box.Fabric.CPU.Cores = "", 0
		for _, n := range box.Nodes {
			box.Fabric.CPU.Cores += len(n.CPUs)
		}
		box.Fabric.CPU.Cores = max(box.Fabric.CPU.Cores, 1)
		return "the box gives no rates: those of a core and its caches are taken from box this", nil
	}
	like, err := boxes.Load(directBox)
	if err != nil {
		return "", err
	}
	f := like.Fabric
	f.Fitted, f.Paths = "", nil
	slowest := slowestLink(box.GPUs()) * flowShare
	for _, route := range []topology.Route{topology.OneSwitch, topology.Switches, topology.HostLocal, topology.SameNode, topology.CrossNode} {
		p := topology.PathRates{Route: route, LatencyUS: 1.09, GBps: slowest}
		switch route {
		case topology.OneSwitch, topology.Switches:
			p.LatencyUS = 0.73
		case topology.CrossNode:
			p.LatencyUS, p.GBps = 1.3, slowest*0.85
		}
		f.Paths = append(f.Paths, p)
	}
	f.Device.ConcurrentGBps = slowest * concurrentShare
	if len(box.NVLinks) > 0 {
		f.Paths = append(f.Paths, topology.PathRates{Route: topology.ByNVLink, LatencyUS: 0.94, GBps: box.NVLinks[0].GBps * 0.85})
	}
	f.UplinkGBps = slowest
	f.Device.MemoryGBps = memoryRate(box.GPUs()[0].Name)
	box.Fabric = f
	return "the box gives no rates: links are taken by their speed, all else as on box " + directBox + "; collapses are not foreseen", nil
}

// slowestLink is the payload rate of the slowest GPU's link, at its best.
func slowestLink(gpus []topology.Device) float64 {
	const gen5 = 63.0
	slowest := gen5
	for _, gpu := range gpus {
		if gpu.Link != nil && gpu.Link.MaxGBps() > 0 {
			slowest = min(slowest, gpu.Link.MaxGBps())
		}
	}
	return slowest
}

// memoryRate is the read rate of a GPU's memory by its data sheet, in 10^9 bytes a
// second; of an RTX PRO 6000 where the name says nothing.
func memoryRate(name string) float64 {
	for _, known := range []struct {
		name string
		gbps float64
	}{{"H200", 4300}, {"H100 PCIe", 2000}, {"H100", 3350}, {"B200", 7700}, {"A100", 1900}, {"L40", 860}, {"5090", 1790}, {"4090", 1000}, {"3090", 930}} {
		if strings.Contains(name, known.name) {
			return known.gbps
		}
	}
	return 1800
}
