// Command wasirun runs a wasip1 test binary under wazero, for
// GOOS=wasip1 GOARCH=wasm go test -exec wasirun.
//
// The binary gets the environment, the standard streams, its arguments and the
// working directory. It can read the folders named in WASIRUN_READ (a list as
// in PATH), under their own names, and write under the temporary directory.
// Compiled code is kept in WASIRUN_CACHE where that is set.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: wasirun program.wasm [argument ...]")
		os.Exit(2)
	}
	code, err := run(context.Background(), os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "wasirun:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

// run runs the program args[0] and returns its exit status.
func run(ctx context.Context, args []string) (code int, err error) {
	binary, err := os.ReadFile(args[0])
	if err != nil {
		return 0, err
	}
	runtimeConfig := wazero.NewRuntimeConfig()
	if dir := os.Getenv("WASIRUN_CACHE"); dir != "" {
		cache, err := wazero.NewCompilationCacheWithDir(dir)
		if err != nil {
			return 0, err
		}
		defer cache.Close(ctx)
		runtimeConfig = runtimeConfig.WithCompilationCache(cache)
	}
	r := wazero.NewRuntimeWithConfig(ctx, runtimeConfig)
	defer r.Close(ctx)
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, r); err != nil {
		return 0, err
	}
	compiled, err := r.CompileModule(ctx, binary)
	if err != nil {
		return 0, err
	}
	config, err := moduleConfig(args)
	if err != nil {
		return 0, err
	}
	_, err = r.InstantiateModule(ctx, compiled, config)
	if exit := (*sys.ExitError)(nil); errors.As(err, &exit) {
		return int(exit.ExitCode()), nil
	}
	return 0, err
}

// moduleConfig says what the program is given.
func moduleConfig(args []string) (wazero.ModuleConfig, error) {
	temp, err := filepath.Abs(os.TempDir())
	if err != nil {
		return nil, err
	}
	mounts := wazero.NewFSConfig()
	for _, dir := range filepath.SplitList(os.Getenv("WASIRUN_READ")) {
		if dir, err = filepath.Abs(dir); err != nil {
			return nil, err
		}
		mounts = mounts.WithReadOnlyDirMount(dir, dir)
	}
	mounts = mounts.WithDirMount(temp, temp)
	config := wazero.NewModuleConfig().
		WithArgs(args...).
		WithStdin(os.Stdin).WithStdout(os.Stdout).WithStderr(os.Stderr).
		WithSysWalltime().WithSysNanotime().WithSysNanosleep().
		WithRandSource(rand.Reader).
		WithFSConfig(mounts)
	cwd, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	for _, pair := range os.Environ() {
		key, value, _ := strings.Cut(pair, "=")
		if key == "PWD" || key == "TMPDIR" {
			continue
		}
		config = config.WithEnv(key, value)
	}
	// Go's wasip1 runtime takes its working directory from PWD.
	return config.WithEnv("PWD", cwd).WithEnv("TMPDIR", temp), nil
}
