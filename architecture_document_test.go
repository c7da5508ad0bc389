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

// listedFolder is a folder named in ARCHITECTURE.md, perhaps with alternatives
// in braces.
var listedFolder = regexp.MustCompile("`([a-z0-9/]+)(?:{([a-z0-9,]+)})?`")

func TestTheArchitectureDescribesEveryPackage(t *testing.T) {
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "## Folders\n")
	table, _, _ = strings.Cut(table, "\n## ")
	described := map[string]bool{}
	for _, m := range listedFolder.FindAllStringSubmatch(table, -1) {
		for end := range strings.SplitSeq(m[2], ",") {
			described[m[1]+end] = true
		}
	}
	for _, pkg := range listPackages(t) {
		if name, ours := strings.CutPrefix(pkg.ImportPath, module); ours && !described[name] {
			t.Errorf("package %s is not among the folders of ARCHITECTURE.md", name)
		}
	}
	for folder := range described {
		if _, err := os.Stat(folder); err != nil {
			t.Errorf("ARCHITECTURE.md describes a folder that is not there: %v", err)
		}
	}
}
