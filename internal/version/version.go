// Package version says which build this is: the same string in the CLI, the
// RPC status and the plan cache, and in the handshake that keeps ranks of
// different builds out of one group.
package version

import "runtime/debug"

// String is the module version, or the VCS revision of a local build, or "dev".
func String() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "dev"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return s.Value[:12]
		}
	}
	return "dev"
}
