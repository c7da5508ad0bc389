package nano

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Pair is an unpacked pair.
type Pair struct {
	Target string // checkpoint folder of the target, with its tokenizer
	Draft  string // checkpoint folder of the drafter
}

// Unpack makes sure that dir, a cache folder, holds the pair, and says where.
// Processes may unpack into one dir at the same time.
func Unpack(dir string) (Pair, error) {
	files := Files()
	sums, err := fs.ReadFile(files, "SHA256SUMS")
	if err != nil {
		return Pair{}, err
	}
	folder := filepath.Join(dir, fmt.Sprintf("nano-%.6x", sha256.Sum256(sums)))
	pair := Pair{Target: filepath.Join(folder, "target"), Draft: filepath.Join(folder, "draft")}
	if compare(files, folder) == nil {
		return pair, nil
	}
	if err := install(files, dir, folder); err != nil {
		return Pair{}, fmt.Errorf("unpack the embedded pair into %s: %w", dir, err)
	}
	return pair, nil
}

// install writes the files beside folder and moves them there as a whole.
func install(files fs.FS, dir, folder string) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(dir, "nano-new-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(fresh)) }()
	whole := filepath.Join(fresh, "pair")
	if err := os.CopyFS(whole, files); err != nil {
		return err
	}
	return place(files, whole, folder, filepath.Join(fresh, "old"))
}

// place renames whole to folder. A folder that is there already either came from a
// faster process and stays, or is damaged and goes aside, where its files live on for
// whoever has them mapped.
func place(files fs.FS, whole, folder, aside string) error {
	err := os.Rename(whole, folder)
	if err == nil || compare(files, folder) == nil {
		return nil
	}
	if os.Rename(folder, aside) != nil {
		return err
	}
	return os.Rename(whole, folder)
}

// compare returns nil if folder has every embedded file, byte for byte.
func compare(files fs.FS, folder string) error {
	return fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		want, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		got, err := os.ReadFile(filepath.Join(folder, filepath.FromSlash(name)))
		if err == nil && !bytes.Equal(want, got) {
			err = fmt.Errorf("%s differs from the embedded file", name)
		}
		return err
	})
}
