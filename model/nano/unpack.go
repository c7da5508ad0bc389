package nano

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
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
	if verified(files, folder) {
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
	var a, b piece
	return fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		want, err := files.Open(name)
		if err != nil {
			return err
		}
		defer want.Close()
		got, err := os.Open(filepath.Join(folder, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		defer got.Close()
		return same(name, want, got, &a, &b)
	})
}

// piece is compared at a time: small enough to stay in a cache, and to cost no
// fresh memory for every page of the files.
type piece [64 << 10]byte

// same returns nil if both readers give the same bytes.
func same(name string, want, got io.Reader, a, b *piece) error {
	for {
		n, end := io.ReadFull(want, a[:])
		m, err := io.ReadFull(got, b[:])
		switch {
		case !bytes.Equal(a[:n], b[:m]):
			return fmt.Errorf("%s differs from the embedded file", name)
		case end == nil && err == nil:
		case isEnd(end) && isEnd(err):
			return nil
		default:
			return errors.Join(end, err)
		}
	}
}

func isEnd(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
