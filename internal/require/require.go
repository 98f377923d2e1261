// Package require turns "this machine lacks something" into a visible skip,
// and into a failure where the machine was expected to have it.
//
// The environment variable FUEL_REQUIRE lists, separated by commas, what must
// be there: FUEL_REQUIRE=shared,gcc,wine. CI sets it for everything that it
// installs, so a test cannot quietly stop running there.
package require

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Listed reports whether FUEL_REQUIRE names what.
func Listed(what string) bool {
	return slices.ContainsFunc(strings.Split(os.Getenv("FUEL_REQUIRE"), ","), func(s string) bool {
		return strings.TrimSpace(s) == what
	})
}

// Skip ends the test: as a skip that says what is missing and why, or as a
// failure where FUEL_REQUIRE names what.
func Skip(t testing.TB, what, reason string) {
	t.Helper()
	if Listed(what) {
		t.Fatalf("FUEL_REQUIRE names %s, but: %s", what, reason)
	}
	t.Skipf("needs %s: %s", what, reason)
}

// Shared returns the folder of shared test data that lies beside the project,
// looking upward from the working directory, and skips the test without it.
// FUEL_SHARED names it where it lies elsewhere.
func Shared(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("FUEL_SHARED"); dir != "" {
		if _, err := os.Stat(filepath.Join(dir, "models")); err != nil {
			Skip(t, "shared", "FUEL_SHARED: "+err.Error())
		}
		return dir
	}
	dir, err := os.Getwd()
	if err != nil {
		Skip(t, "shared", err.Error())
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if filepath.Dir(dir) == dir {
			Skip(t, "shared", "the working directory is not inside the project")
		}
		dir = filepath.Dir(dir)
	}
	shared := filepath.Join(filepath.Dir(dir), "shared")
	if _, err := os.Stat(filepath.Join(shared, "models")); err != nil {
		Skip(t, "shared", err.Error())
	}
	return shared
}

// Command returns the path of an executable and skips the test without it.
func Command(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Skip(t, name, err.Error())
	}
	return path
}
