// Package shapes embeds the config.json of published models, without weights,
// for the simulator and for benchmarks with random weights. The numbers are
// those of the models' public configuration files.
package shapes

import (
	"embed"
	"fmt"
	"path"
	"slices"
	"strings"
)

//go:embed *.json
var files embed.FS

// Names lists the models, sorted.
func Names() []string {
	matches, err := files.ReadDir(".")
	if err != nil {
		panic("shapes: the embedded folder is not readable: " + err.Error())
	}
	var names []string
	for _, m := range matches {
		names = append(names, strings.TrimSuffix(m.Name(), path.Ext(m.Name())))
	}
	slices.Sort(names)
	return names
}

// Config returns the config.json of a model by name.
func Config(name string) ([]byte, error) {
	data, err := files.ReadFile(name + ".json")
	if err != nil {
		return nil, fmt.Errorf("no model shape is called %q; there are %s", name, strings.Join(Names(), ", "))
	}
	return data, nil
}
