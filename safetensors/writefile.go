package safetensors

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// WriteFile is Write to the file at path, which it creates or replaces: the
// bytes go to a temporary file in the same directory, are synchronised to the
// disk, and get the name when all is done. If anything fails before, what was at
// path is as it was, and nothing is left beside it. Only a failure to synchronise
// the directory comes afterwards: the file is replaced then, but a crash of the
// system may bring the old one back.
//
// A file that is replaced hands on its permissions; a new one gets 0666 before
// umask. A symbolic link is followed. What is neither a regular file nor
// absent, as a directory or a pipe, is not replaced: that is an error.
//
// Storages may be mapped from the very file that is replaced; they keep the
// old bytes. (Windows refuses to replace a file that is mapped.)
func WriteFile(path string, tensors []Tensor, metadata map[string]string) error {
	return WriteFileContext(context.Background(), path, tensors, metadata)
}

// WriteFileContext is WriteFile with a context that stops the writing.
func WriteFileContext(ctx context.Context, path string, tensors []Tensor, metadata map[string]string) error {
	p, err := prepare(tensors, metadata)
	if err != nil {
		return err
	}
	defer p.close()
	return replaceFile(path, func(f *os.File) error {
		w := bufio.NewWriterSize(contextWriter{ctx, f}, pieceBytes)
		if err := p.writeTo(w, hostBigEndian); err != nil {
			return err
		}
		return w.Flush()
	})
}

type contextWriter struct {
	ctx context.Context
	w   io.Writer
}

func (c contextWriter) Write(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.w.Write(p)
}

// replaceFile has write fill a temporary file and then gives that the name
// path.
func replaceFile(path string, write func(*os.File) error) (err error) {
	path, err = followLinks(path)
	if err != nil {
		return err
	}
	old, err := os.Lstat(path)
	switch {
	case err == nil && !old.Mode().IsRegular():
		return &fs.PathError{Op: "replace", Path: path, Err: errors.New("not a regular file")}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	f, err := createBeside(path)
	if err != nil {
		return err
	}
	done := false
	defer func() {
		if !done {
			f.Close()
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if old != nil {
		if err := f.Chmod(old.Mode().Perm()); err != nil {
			return err
		}
	}
	if err := write(f); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	done = true
	dir, _ := filepath.Split(path)
	return syncDir(cmp.Or(dir, "."))
}

// followLinks returns what path names in the end, whether it exists or not.
// Nothing here cleans a path: behind a link to a directory ".." is the parent of
// that directory.
func followLinks(path string) (string, error) {
	const most = 40 // as Linux has it
	for range most {
		target, err := os.Readlink(path)
		if err != nil {
			return path, nil // not a link, or not there: whoever uses it will see
		}
		if !filepath.IsAbs(target) {
			dir, _ := filepath.Split(path)
			if dir, err = filepath.EvalSymlinks(cmp.Or(dir, ".")); err != nil {
				return "", err
			}
			target = dir + string(filepath.Separator) + target
		}
		path = target
	}
	return "", &fs.PathError{Op: "replace", Path: path, Err: errors.New("too many symbolic links")}
}

// createBeside creates a file with a name of its own in the directory of path.
// Unlike os.CreateTemp's its permissions are those of any new file.
func createBeside(path string) (*os.File, error) {
	dir, base := filepath.Split(path)
	for try := 0; ; try++ {
		name := dir + fmt.Sprintf(".%s.%08x.tmp", short(base), rand.Uint32())
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
		if !errors.Is(err, fs.ErrExist) || try == 1000 {
			return f, err
		}
	}
}

// short keeps a name that is as long as names may be from becoming longer.
func short(name string) string { return name[:min(len(name), 100)] }
