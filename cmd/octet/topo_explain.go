package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/octet-run/octet/collectives"
	"github.com/octet-run/octet/collectives/boxsim"
	"github.com/octet-run/octet/collectives/topology"
	"github.com/octet-run/octet/collectives/transport"
)

// explanation says what is in use on a box, and why not something else.
type explanation struct {
	Ranks   int               `json:"ranks"`
	Islands []int             `json:"islands,omitempty"`
	Basis   string            `json:"basis"` // what the choice rests on
	Plan    string            `json:"plan"`  // its hash
	Pairs   []pairExplained   `json:"pairs,omitempty"`
	Choices []choiceExplained `json:"choices"`
}

// pairExplained is the way between two GPUs.
type pairExplained struct {
	From      int            `json:"from"`
	To        int            `json:"to"`
	Route     topology.Route `json:"route"`
	Path      string         `json:"path"`
	LatencyUS float64        `json:"latency_us,omitempty"`
	GBps      float64        `json:"gb_s,omitempty"`
	Instead   []string       `json:"instead"` // the other ways, each with why not
	Warnings  []string       `json:"warnings,omitempty"`
}

// choiceExplained is the algorithm for a range of sizes.
type choiceExplained struct {
	MaxBytes  int      `json:"max_bytes"` // 0: of any size
	Fused     bool     `json:"fused"`
	Algorithm string   `json:"algorithm"`
	Path      string   `json:"path,omitempty"` // of a simulated one
	Why       string   `json:"why"`
	Instead   []string `json:"instead"`
}

func explain(box *topology.Box, ranks int, here bool) (*explanation, error) {
	gpus := len(box.GPUs())
	if gpus > 0 && ranks > gpus {
		return nil, usagef("--ranks %d: the box has %d GPUs", ranks, gpus)
	}
	e := &explanation{Ranks: ranks}
	if err := e.decide(box, here && gpus == 0); err != nil {
		return nil, err
	}
	for i := range min(ranks, gpus) {
		for j := range min(ranks, gpus) {
			if i != j {
				e.Pairs = append(e.Pairs, explainPair(box, i, j))
			}
		}
	}
	return e, nil
}

// decide says which algorithm is in use: by the plan of this machine, or else by what
// the simulator, which octet simulate asks too, finds fastest on the box.
func (e *explanation) decide(box *topology.Box, here bool) error {
	if here {
		plan, basis, err := planHere(e.Ranks)
		if err != nil {
			return err
		}
		e.Basis, e.Islands, e.Plan = basis, plan.Shape.Islands, fmt.Sprintf("%016x", plan.Hash())
		e.choices(plan)
		return nil
	}
	e.Basis = "predicted by the simulator, not measured"
	if len(box.GPUs()) == 0 { // octet tune is for ranks on processors
		e.Basis += "; where the box is, octet tune measures"
	}
	if box.Fabric == nil {
		like := *box // what is assumed is no part of the box, which the caller prints
		assumed, err := assumeFabric(&like)
		if err != nil {
			return err
		}
		box, e.Basis = &like, e.Basis+"; "+assumed
	}
	prediction, err := boxsim.Predict(box, e.Ranks)
	if err != nil {
		return usageError{err}
	}
	e.Islands, e.Plan = prediction.Shape.Islands, fmt.Sprintf("%016x", prediction.Plan().Hash())
	e.predicted(prediction)
	return nil
}

// planHere is what a group of this machine's processors uses for models with long
// rows, whose slabs lie on huge pages where there are any, and what that rests on.
func planHere(ranks int) (collectives.Plan, string, error) {
	hugePages := transport.HugePagesAvailable()
	if tuned, found := cachedPlan(ranks, hugePages); found {
		return tuned, "octet tune, on this machine since it booted", nil
	}
	allowed, err := allowedCPUs()
	if err != nil {
		return collectives.Plan{}, "", err
	}
	plan, err := planFor(ranks, len(allowed) >= ranks, hugePages, false, cachedVerdict(ranks))
	return plan, "policy; octet tune measures", err
}

// predicted says of every range of sizes what is fastest, and what the others take.
func (e *explanation) predicted(p boxsim.Prediction) {
	for _, c := range p.Choices {
		x := choiceExplained{
			MaxBytes: c.MaxBytes, Fused: c.Fused, Algorithm: c.Algorithm, Path: c.Path,
			Why: fmt.Sprintf("by %s path, predicted to be the fastest: %.1f us", c.Path, c.US),
		}
		payload := collectives.Payload{Rows: 1, Width: max(c.AtBytes()/p.WireBytes, 1), Fused: c.Fused, CommonResidual: c.Fused && p.Shape.Coherent}
		for _, other := range c.Others {
			x.Instead = append(x.Instead, fmt.Sprintf("%s: by %s path, predicted %.1f us", other.Algorithm, other.Path, other.US))
		}
		for _, a := range collectives.Algorithms() {
			switch err := a.Admits(p.Shape, payload); {
			case err != nil:
				x.Instead = append(x.Instead, a.Name+": "+err.Error())
			case !a.Exact:
				x.Instead = append(x.Instead, a.Name+": is not exact, and only exact ones are allowed")
			}
		}
		e.Choices = append(e.Choices, x)
	}
}

// choices says of every range of the plan why the other algorithms are not used.
func (e *explanation) choices(plan collectives.Plan) {
	for _, c := range plan.Choices {
		x := choiceExplained{MaxBytes: c.MaxBytes, Fused: c.Fused, Algorithm: c.Algorithm, Why: c.Why}
		payload := collectives.Payload{Rows: 1, Width: max(cmp.Or(c.MaxBytes/4, tuneMost), 1), Fused: c.Fused}
		for _, a := range collectives.Algorithms() {
			if a.Name == c.Algorithm {
				continue
			}
			reason := "admitted, but not preferred at this size: " + a.Summary
			switch err := a.Admits(plan.Shape, payload); {
			case err != nil:
				reason = err.Error()
			case !a.Exact && !plan.AllowInexact:
				reason = "is not exact, and only exact ones are allowed"
			case c.Median > 0:
				reason = "measured, and slower or not faster"
			}
			x.Instead = append(x.Instead, a.Name+": "+reason)
		}
		e.Choices = append(e.Choices, x)
	}
}

// explainPair is the way from one GPU's memory to another's.
func explainPair(box *topology.Box, i, j int) pairExplained {
	route := box.RouteOf(i, j)
	p := pairExplained{From: i, To: j, Route: route, Path: "stores from peer to peer " + routeText(route)}
	if box.Fabric != nil {
		if rates, known := box.Fabric.PathOf(route); known {
			p.LatencyUS, p.GBps = rates.LatencyUS, rates.GBps
		}
		for _, c := range box.Fabric.Collapse {
			if slices.Contains(c.GPUs, i) && !slices.Contains(c.GPUs, j) {
				p.Warnings = append(p.Warnings, fmt.Sprintf("stores of %d or more GPUs of this switch to %d or more root ports fall to %.2g GB/s together; loads do not", c.Sources, c.Roots, c.GBps))
			}
		}
	}
	if route == topology.ByNVLink {
		p.Instead = []string{"PCIe: slower than NVLink", "host memory: slower than NVLink"}
		return p
	}
	p.Instead = []string{"NVLink: the two are not joined by one"}
	if route != topology.OneSwitch && route != topology.Switches {
		p.Instead = append(p.Instead, "within a switch: they are below different root ports")
	}
	p.Instead = append(p.Instead, "host memory: two transfers instead of one; for peers that cannot be reached, or where the probe finds it faster")
	if box.IOMMU == "translated" {
		p.Warnings = append(p.Warnings, "the IOMMU translates every access: peer traffic goes through the root complex, slowly or not at all")
	}
	if redirected(box.Roots, box.GPUs()[i].Address) {
		p.Warnings = append(p.Warnings, "access control above GPU "+fmt.Sprint(i)+" redirects peer traffic to the root complex")
	}
	return p
}

func routeText(r topology.Route) string {
	switch r {
	case topology.ByNVLink:
		return "over NVLink"
	case topology.OneSwitch:
		return "through one PCIe switch"
	case topology.Switches:
		return "through several PCIe switches"
	case topology.HostLocal:
		return "through one host bridge"
	case topology.SameNode:
		return "between host bridges of a NUMA node"
	}
	return "across the link between NUMA nodes"
}

// redirected reports whether a bridge above a device redirects peer traffic.
func redirected(devices []topology.Device, address string) bool {
	for _, d := range devices {
		if holds(d, address) {
			return d.ACS == "redirects" || redirected(d.Children, address)
		}
	}
	return false
}

func holds(d topology.Device, address string) bool {
	return d.Address == address || slices.ContainsFunc(d.Children, func(c topology.Device) bool { return holds(c, address) })
}

// sizesUpTo names the payloads of one choice of a plan; the last has no bound.
func sizesUpTo(bytes int) string {
	if bytes == 0 {
		return "any larger size"
	}
	return fmt.Sprintf("up to %d bytes", bytes)
}

func (e *explanation) print(out io.Writer) {
	fmt.Fprintf(out, "\n%d ranks, islands %v, plan %s (%s)\n\n", e.Ranks, e.Islands, e.Plan, e.Basis)
	said := map[bool][]string{}
	for _, c := range e.Choices {
		form := "plain"
		if c.Fused {
			form = "fused"
		}
		fmt.Fprintf(out, "%s, %s: %s (%s)\n", sizesUpTo(c.MaxBytes), form, c.Algorithm, c.Why)
		if slices.Equal(said[c.Fused], c.Instead) {
			continue // as said for the size before
		}
		said[c.Fused] = c.Instead
		for _, other := range c.Instead {
			fmt.Fprintf(out, "  not %s\n", other)
		}
	}
	e.printPairs(out)
}

// printPairs groups the pairs that have the same story.
func (e *explanation) printPairs(out io.Writer) {
	var order []string
	stories := map[string][]string{}
	for _, p := range e.Pairs {
		story := fmt.Sprintf("%s: %s", p.Route, p.Path)
		if p.GBps > 0 {
			story += fmt.Sprintf(", %.2f us, %.0f GB/s", p.LatencyUS, p.GBps)
		}
		for _, i := range p.Instead {
			story += "\n  not " + i
		}
		for _, warning := range p.Warnings {
			story += "\n  ! " + warning
		}
		if stories[story] == nil {
			order = append(order, story)
		}
		stories[story] = append(stories[story], fmt.Sprintf("%d>%d", p.From, p.To))
	}
	for _, story := range order {
		fmt.Fprintf(out, "\n%s\n  pairs %v\n", story, stories[story])
	}
}
