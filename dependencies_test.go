package octet_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// dependencyRow is a row of ARCHITECTURE.md's dependency table: modules, reason.
var dependencyRow = regexp.MustCompile(`(?m)^\| ((?:[a-z0-9]+\.)+[a-z]+/[^|]*?) +\| ([^|]+) \|$`)

func TestEveryDirectDependencyHasItsReason(t *testing.T) {
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, row := range dependencyRow.FindAllStringSubmatch(string(text), -1) {
		listed = append(listed, strings.Split(row[1], ", ")...)
	}
	if len(listed) == 0 {
		t.Fatal("ARCHITECTURE.md has no dependency table")
	}
	needed := directDependencies(t)
	for _, path := range needed {
		if !coveredByAny(listed, path) {
			t.Errorf("go.mod requires %s, for which ARCHITECTURE.md gives no reason", path)
		}
	}
	for _, prefix := range listed {
		if !coversAny(prefix, needed) {
			t.Errorf("ARCHITECTURE.md lists %s, which go.mod does not require", prefix)
		}
	}
}

// directDependencies are the modules and tools that the code names itself.
func directDependencies(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("go", "mod", "edit", "-json").Output()
	if err != nil {
		t.Fatalf("go mod edit: %v", err)
	}
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
		Tool []struct{ Path string }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, r := range mod.Require {
		if !r.Indirect {
			paths = append(paths, r.Path)
		}
	}
	for _, tool := range mod.Tool {
		paths = append(paths, tool.Path)
	}
	return paths
}

func coveredByAny(prefixes []string, path string) bool {
	for _, prefix := range prefixes {
		if coversAny(prefix, []string{path}) {
			return true
		}
	}
	return false
}

// coversAny says whether a table entry stands for one of the paths: the path
// itself, or a module or package below it.
func coversAny(prefix string, paths []string) bool {
	for _, path := range paths {
		if strings.HasPrefix(path+"/", prefix+"/") {
			return true
		}
	}
	return false
}
