// Package boxes embeds captured boxes, so that the simulator and topo answer for
// machines that nobody here has. Each says where its numbers are from.
package boxes

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/octet-run/octet/collectives/topology"
)

//go:embed *.json
var files embed.FS

// Names lists the boxes, sorted.
func Names() []string {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic("boxes: the embedded folder is not readable: " + err.Error())
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), path.Ext(e.Name())))
	}
	return names
}

// Load returns the box of a name.
func Load(name string) (*topology.Box, error) {
	data, err := files.ReadFile(name + ".json")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) {
		return nil, fmt.Errorf("no box is called %q; there are %s, or give a box JSON as octet topo --json prints it",
			name, strings.Join(Names(), ", "))
	}
	if err != nil {
		return nil, err
	}
	return topology.Parse(data)
}
