package octet_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/octet-run/octet/"

// arrows says which project packages each package may import. A name ending in
// "/..." stands for the folder and all below it. The longest match of the
// importing package decides. ARCHITECTURE.md draws the same picture.
var arrows = map[string][]string{
	"cmd/...":                     {"..."},
	"coordinator":                 {"actors", "actors/round", "proto/...", "speculation", "model/tokenizer", "collectives/topology", "faults"},
	"coordinator/coordinatortest": {"actors/round", "speculation"},
	"coordinator/openai":          {"coordinator", "speculation", "model/tokenizer", "actors/round", "proto/...", "faults"},
	"actors":                      {"actors/...", "proto/...", "speculation", "internal/shm", "internal/version", "faults"},
	"actors/board":                {"actors/round", "internal/shm", "faults"},
	"actors/ledger":               {"internal/shm", "faults"},
	"actors/lifecycle":            {},
	"actors/link":                 {"internal/shm", "faults"},
	"actors/process":              {},
	"actors/round":                {"proto/...", "speculation", "internal/shm", "faults"},
	"rank":                        {"actors", "actors/ledger", "actors/round", "speculation", "model/...", "collectives/...", "kernels/...", "internal/shm", "internal/version", "faults"},
	"model":                       {"kernels", "model/checkpoint", "faults"},
	"model/checkpoint":            {"kernels", "faults"},
	"model/kvcache":               {"model", "kernels", "faults"},
	"model/layers":                {"model/kvcache", "model", "model/checkpoint", "kernels", "faults"},
	"model/llama":                 {"model/layers", "model/kvcache", "model", "model/checkpoint", "kernels", "faults"},
	"model/deepseek":              {"model/layers", "model/kvcache", "model", "model/checkpoint", "kernels", "faults"},
	"model/eagle3":                {"model/layers", "model/kvcache", "model", "model/checkpoint", "kernels", "faults"},
	"model/load":                  {"model/llama", "model/deepseek", "model/layers", "model", "model/checkpoint", "kernels", "faults"},
	"model/modeltest":             {"model/load", "model/eagle3", "model/layers", "model/kvcache", "model", "model/checkpoint", "kernels"},
	"model/tokenizer":             {},
	"model/nano":                  {"model/checkpoint"},
	"model/shapes":                {},
	"model/synth":                 {"model", "model/checkpoint", "kernels"},
	"collectives":                 {"collectives/transport", "collectives/topology", "kernels/...", "internal/shm", "faults"},
	"collectives/nccl":            {"collectives", "collectives/transport", "collectives/topology", "kernels/...", "internal/shm", "faults"},
	"collectives/boxsim":          {"collectives", "collectives/transport", "collectives/topology", "kernels", "faults"},
	"collectives/transport":       {"internal/shm", "faults"},
	"collectives/topology":        {},
	"deploy/boxes":                {"collectives/topology"},
	"kernels":                     {},
	"kernels/...":                 {"kernels", "kernels/...", "faults"},
	"speculation":                 {},
	"faults":                      {},
	"faults/audit":                {"faults"},
	"internal/shm":                {"faults"},
	"internal/simulation":         {"actors/...", "actors", "coordinator", "rank", "collectives/...", "model", "model/layers", "kernels", "speculation", "internal/shm", "faults"},
	"internal/version":            {},
	"internal/testgroup":          {"internal/shm", "faults"},
	"proto":                       {},
	"proto/...":                   {"proto/..."},
	"internal/...":                {"internal/..."},
}

// handles are the protoactor symbols that packages other than actors may name.
var handles = []string{"Context", "PID", "Props"}

type listedPackage struct {
	ImportPath string
	Dir        string
	Imports    []string
	GoFiles    []string
}

func TestImportsFollowTheArrows(t *testing.T) {
	for _, pkg := range listPackages(t) {
		from, ours := strings.CutPrefix(pkg.ImportPath, module)
		if !ours {
			continue
		}
		allowed, known := allowedFrom(from)
		if !known {
			t.Errorf("package %s is in no arrow: add it to this test and to ARCHITECTURE.md", from)
			continue
		}
		for _, path := range pkg.Imports {
			to, ours := strings.CutPrefix(path, module)
			if ours && !slices.ContainsFunc(allowed, func(p string) bool { return matches(p, to) }) {
				t.Errorf("%s imports %s, which the architecture does not allow", from, to)
			}
		}
	}
}

func TestTheArrowsCatchAForbiddenImport(t *testing.T) {
	allowed, _ := allowedFrom("coordinator")
	for _, forbidden := range []string{"rank", "kernels", "kernels/cpu", "model/llama"} {
		if slices.ContainsFunc(allowed, func(p string) bool { return matches(p, forbidden) }) {
			t.Errorf("coordinator could import %s", forbidden)
		}
	}
}

func TestOnlyActorsReachesIntoProtoactor(t *testing.T) {
	const actorPath = "github.com/asynkron/protoactor-go/actor"
	for _, pkg := range listPackages(t) {
		from := strings.TrimPrefix(pkg.ImportPath, module)
		if from == "actors" {
			continue
		}
		for _, path := range pkg.Imports {
			if strings.HasPrefix(path, "github.com/asynkron/") && path != actorPath {
				t.Errorf("%s imports %s: actors is its only user", from, path)
			}
		}
		if !slices.Contains(pkg.Imports, actorPath) {
			continue
		}
		for _, file := range pkg.GoFiles {
			for _, name := range namesUsed(t, filepath.Join(pkg.Dir, file), actorPath) {
				if !slices.Contains(handles, name) {
					t.Errorf("%s/%s names actor.%s: only %v may leave package actors", from, file, name, handles)
				}
			}
		}
	}
}

// namesUsed lists the symbols of the imported package that a file selects.
func namesUsed(t *testing.T, file, importPath string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	local := ""
	for _, spec := range parsed.Imports {
		if path, _ := strconv.Unquote(spec.Path.Value); path == importPath {
			local = "actor"
			if spec.Name != nil {
				local = spec.Name.Name
			}
		}
	}
	var names []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if id, ok := sel.X.(*ast.Ident); ok && id.Name == local && local != "" {
				names = append(names, sel.Sel.Name)
			}
		}
		return true
	})
	return names
}

func allowedFrom(pkg string) (allowed []string, known bool) {
	if list, ok := arrows[pkg]; ok {
		return list, true
	}
	best := ""
	for pattern := range arrows {
		if strings.HasSuffix(pattern, "/...") && matches(pattern, pkg) && len(pattern) > len(best) {
			best = pattern
		}
	}
	return arrows[best], best != ""
}

func matches(pattern, pkg string) bool {
	folder, deep := strings.CutSuffix(pattern, "...")
	if !deep {
		return pattern == pkg
	}
	return strings.HasPrefix(pkg+"/", folder)
}

func listPackages(t *testing.T) []listedPackage {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Dir,Imports,GoFiles", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var pkgs []listedPackage
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var pkg listedPackage
		if err := decoder.Decode(&pkg); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, pkg)
	}
}
