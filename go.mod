module github.com/go-fuel/fuel

go 1.26.0

require (
	github.com/ebitengine/purego v0.11.3
	github.com/klauspost/cpuid/v2 v2.4.2
	github.com/spf13/pflag v1.1.0
	golang.org/x/sys v0.50.0
)
