// Package asm holds what cpu's assembly is generated from: one package per
// processor, which builds the files in memory.
//
// The test of this package is the check that the committed files are what the
// generators make; it writes them when it is told to:
//
//	go test -C asm ./... -generate
//
// It is a module of its own, so that avo never reaches a user of fuel.
package asm

import (
	"github.com/go-fuel/fuel/asm/amd64"
	"github.com/go-fuel/fuel/asm/arm64"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/printer"
)

// A File is what one committed file must hold.
type File struct {
	Path string // from the root of fuel, with slashes
	Data []byte
}

// Files generates every file.
func Files() ([]File, error) {
	var files []File
	for _, f := range []struct {
		name  string
		build func() (*ir.File, error)
	}{
		{"cpu/bytes_avx2_amd64", amd64.AVX2},
		{"cpu/bytes_avx512_amd64", amd64.AVX512},
		{"cpu/convert_avx2_amd64", amd64.ConvertAVX2},
		{"cpu/convert_avx512_amd64", amd64.ConvertAVX512},
		{"cpu/bytes_neon_arm64", arm64.NEON},
		{"cpu/convert_neon_arm64", arm64.ConvertNEON},
	} {
		built, err := f.build()
		if err != nil {
			return nil, err
		}
		// A fixed name: the output is the same on every machine.
		cfg := printer.Config{Name: "fuel/asm", Pkg: "cpu"}
		for ext, p := range map[string]printer.Printer{".s": printer.NewGoAsm(cfg), ".go": printer.NewStubs(cfg)} {
			data, err := p.Print(built)
			if err != nil {
				return nil, err
			}
			files = append(files, File{f.name + ext, data})
		}
	}
	return files, nil
}
