package house

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const module = "farhand/"

// layers say which packages of ours a package may import, by first path
// element (two where a folder holds several layers). Imports run down only, and
// families and services know neither each other nor the protocol's machinery.
var layers = map[string][]string{
	"wire":              {},
	"link":              {"wire"},
	"stream":            {"wire"},
	"audit":             {"wire"},
	"auth":              {"wire"},
	"identity":          {"wire"},
	"config":            {},
	"systemd":           {},
	"device":            {"wire", "stream"},
	"grant":             {"wire"},
	"gpio":              {"device", "stream", "wire"},
	"bus":               {"device", "stream", "wire"},
	"serialio":          {"device", "stream", "wire"},
	"usb":               {"device", "stream", "wire"},
	"octoprint":         {"device", "stream", "wire"},
	"sim":               {"device", "stream", "wire", "gpio", "bus", "serialio", "usb", "octoprint"},
	"files":             {"stream", "wire"},
	"privacy":           {"wire"},
	"shell":             {"stream", "wire"},
	"terminal":          {"stream", "wire"},
	"llm":               {"stream", "wire"},
	"observe":           {"stream", "wire"},
	"forward":           {"stream", "wire"},
	"provision":         {"wire", "identity", "auth", "systemd", "forward"},
	"shim":              {"audit", "grant", "link", "stream", "wire"},
	"daemon":            {"*"},
	"relay":             {"wire", "link", "audit"},
	"client":            {"wire", "link"},
	"client/clienttest": {"client", "wire", "link", "stream"}, // plays a device
	"mcp":               {"client", "wire"},
	"cmd":               {"*"},
	"e2e":               {"*"},
	"lab":               {"*"},
	"image":             {"config", "systemd", "provision/grubenv", "provision/hardware"},
}

// forbidden is what a package must never reach, not by others either, whatever
// else is allowed.
var forbidden = map[string][]string{
	"relay":             {"device", "shim", "daemon"},
	"client":            {"device", "shim", "daemon", "relay"},
	"daemon":            {"relay", "client", "mcp", "cmd"},
	"cmd/farhandd":      {"relay", "client", "mcp"},
	"cmd/farhand":       {"daemon", "device", "shim", "relay"},
	"cmd/farhand-relay": {"daemon", "device", "shim"}, // it has mcp, and so client, answer agents
}

type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string // with those of imports, and so on
}

func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,Deps", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) < 10 {
		t.Fatalf("go list found only %d packages", len(all))
	}
	return all
}

func first(path string) string {
	head, _, _ := strings.Cut(path, "/")
	return head
}

func TestImportDirection(t *testing.T) {
	for _, p := range list(t) {
		from := strings.TrimPrefix(p.ImportPath, module)
		if strings.HasPrefix(from, "internal/") {
			continue // plumbing is checked by TestPlumbing
		}
		allowed, known := layers[from]
		if !known {
			allowed, known = layers[first(from)]
		}
		if !known {
			t.Errorf("%s: no layer; give it one in this test", from)
			continue
		}
		for _, imp := range p.Imports {
			to, ours := strings.CutPrefix(imp, module)
			if !ours || strings.HasPrefix(to, "internal/") || first(to) == first(from) && first(from) != "cmd" {
				continue
			}
			if !matches(allowed, to) && !strings.HasPrefix(to, from+"/") {
				t.Errorf("%s imports %s, which doesn't lie below it", from, to)
			}
		}
		for who, never := range forbidden {
			if from != who && !strings.HasPrefix(from, who+"/") {
				continue
			}
			for _, dep := range p.Deps {
				if to, ours := strings.CutPrefix(dep, module); ours && matches(never, to) {
					t.Errorf("%s depends on %s, which it must never know", from, to)
				}
			}
		}
	}
}

func matches(list []string, path string) bool {
	for _, l := range list {
		if l == "*" || path == l || strings.HasPrefix(path, l+"/") {
			return true
		}
	}
	return false
}

// Plumbing has no opinions, so it knows nothing of the house above it, but for
// programs that exercise it from outside.
func TestPlumbing(t *testing.T) {
	programs := map[string]bool{"internal/tryout": true, "internal/bench": true}
	for _, p := range list(t) {
		from := strings.TrimPrefix(p.ImportPath, module)
		if !strings.HasPrefix(from, "internal/") || programs[from] {
			continue
		}
		for _, imp := range p.Imports {
			if to, ours := strings.CutPrefix(imp, module); ours && !strings.HasPrefix(to, "internal/") {
				t.Errorf("%s imports %s", from, to)
			}
		}
	}
}

// eachFile parses every Go file of the tree.
func eachFile(t *testing.T, f func(path string, file *ast.File, fset *token.FileSet)) {
	t.Helper()
	fset := token.NewFileSet()
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "../.." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(fset, path, src, parser.ParseComments)
		if err != nil {
			return err
		}
		f(strings.TrimPrefix(path, "../../"), file, fset)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestOnePackageComment(t *testing.T) {
	docs := make(map[string]int)
	eachFile(t, func(path string, file *ast.File, _ *token.FileSet) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		dir := filepath.Dir(path)
		docs[dir] += 0
		if file.Doc != nil && strings.TrimSpace(file.Doc.Text()) != "" {
			docs[dir]++
		}
	})
	for dir, n := range docs {
		if n != 1 {
			t.Errorf("%s has %d package comments, want one", dir, n)
		}
	}
}

func TestNoInitNoSleepingTests(t *testing.T) {
	eachFile(t, func(path string, file *ast.File, fset *token.FileSet) {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Name.Name == "init" && n.Recv == nil {
					t.Errorf("%s: init function", fset.Position(n.Pos()))
				}
			case *ast.CallExpr:
				if s, ok := n.Fun.(*ast.SelectorExpr); ok && strings.HasSuffix(path, "_test.go") {
					if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" && s.Sel.Name == "Sleep" {
						t.Errorf("%s: a test sleeps", fset.Position(n.Pos()))
					}
				}
			}
			return true
		})
	})
}
