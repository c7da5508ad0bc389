package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	indexName = "model.safetensors.index.json"
	// maxIndexBytes is several times the largest published index.
	maxIndexBytes = 256 << 20
)

// openIndex maps the files that the index names; it decides where a tensor is.
func (f *Files) openIndex() error {
	path := filepath.Join(f.dir, indexName)
	files, err := readIndex(path)
	if err != nil {
		return err
	}
	bad := func(tensor, expected, found string) error {
		return &FormatError{File: path, Tensor: tensor, Expected: expected, Found: found}
	}
	stored, opened := map[string]located{}, map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file := files[name]
		if !opened[file] {
			if file != filepath.Base(file) || !strings.HasSuffix(file, ".safetensors") {
				return bad(name, "a safetensors file beside the index", fmt.Sprintf("%q", file))
			}
			infos, s, err := f.mapFile(file)
			if err != nil {
				return naming(err, name)
			}
			opened[file] = true
			for _, info := range infos {
				if other, twice := stored[info.Name]; twice {
					return &FormatError{File: info.File, Tensor: info.Name, Expected: "it in one file", Found: "it in " + other.File + " as well"}
				}
				stored[info.Name] = located{info, s}
			}
		}
		t, ok := stored[name]
		if !ok || filepath.Base(t.File) != file {
			return bad(name, "it in "+file, "no such tensor there")
		}
		f.tensors[name] = t
	}
	f.unlisted = map[string]string{}
	for name, t := range stored {
		if _, ok := files[name]; !ok {
			f.unlisted[name] = t.File
		}
	}
	return nil
}

// readIndex is the file of every tensor.
func readIndex(path string) (map[string]string, error) {
	bad := func(tensor, expected, found string) error {
		return &FormatError{File: path, Tensor: tensor, Expected: expected, Found: found}
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, bad("", "an index", "something that is not a file")
	}
	if info.Size() > maxIndexBytes {
		return nil, bad("", "an index", fmt.Sprintf("%d bytes", info.Size()))
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var index struct {
		WeightMap json.RawMessage `json:"weight_map"`
	}
	if err := json.Unmarshal(data, &index); err != nil {
		return nil, bad("", "a JSON object with weight_map", jsonProblem(err))
	}
	var files map[string]string
	if index.WeightMap != nil {
		if err := json.Unmarshal(index.WeightMap, &files); err != nil {
			return nil, bad("", "the name of a file for every tensor in weight_map", jsonProblem(err))
		}
	}
	if len(files) == 0 {
		return nil, bad("", "the tensors in weight_map", "none")
	}
	if countEntries(index.WeightMap) != len(files) {
		return nil, bad(repeated(index.WeightMap), "one entry in weight_map", "two")
	}
	return files, nil
}

// countEntries is how many entries an object of texts has, repeated ones too.
func countEntries(object []byte) int {
	n, quoted := 0, false
	for i := 0; i < len(object); i++ {
		switch object[i] {
		case '\\':
			i++
		case '"':
			quoted = !quoted
		case ':':
			if !quoted {
				n++
			}
		}
	}
	return n
}

// repeated is the first name that an object of texts has twice.
func repeated(object []byte) string {
	dec := json.NewDecoder(bytes.NewReader(object))
	seen := map[json.Token]bool{}
	for key := true; ; key = !key {
		token, err := dec.Token()
		if err != nil {
			return ""
		}
		if _, brace := token.(json.Delim); brace {
			key = !key
			continue
		}
		if key && seen[token] {
			return token.(string)
		}
		if key {
			seen[token] = true
		}
	}
}

// jsonProblem is what is wrong with a JSON text, in words of JSON.
func jsonProblem(err error) string {
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &kind) && kind.Field != "":
		return fmt.Sprintf("%s in %s", kind.Value, kind.Field)
	case errors.As(err, &kind):
		if strings.ContainsAny(kind.Value[:1], "ao") { // array, object
			return "an " + kind.Value
		}
		return "a " + kind.Value
	}
	return err.Error()
}
