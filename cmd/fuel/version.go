package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// versionLine tells which build this is.
func versionLine() string {
	version, commit, modified := "unknown", "", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				commit = ", commit " + s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				modified = ", modified"
			}
		}
	}
	if version == "" {
		version = "(devel)" // as the go command says it
	}
	return fmt.Sprintf("fuel %s (%s, %s/%s%s%s)", version, runtime.Version(), runtime.GOOS, runtime.GOARCH, commit, modified)
}
