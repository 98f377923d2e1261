package main

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/safetensors"
)

var generate = flag.Bool("generate", false, "write testdata/checkpoint.safetensors instead of comparing it")

// TestCheckpointIsWhatItsGeneratorMakes is also the generator. (The embedding
// wants a file to be there, if an empty one.)
func TestCheckpointIsWhatItsGeneratorMakes(t *testing.T) {
	want := makeCheckpoint(t)
	if *generate {
		if err := os.WriteFile(filepath.FromSlash("testdata/checkpoint.safetensors"), want, 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	if i := firstDifference(want, checkpoint); i >= 0 {
		t.Errorf("differs at byte %d of %d and %d: run go test ./cmd/fuel -generate", i, len(want), len(checkpoint))
	}
}

// makeCheckpoint returns the file: for every dtype of the format a tensor of
// odd dimensions, an empty one, and a scalar where an element fills its bytes,
// and a bigger one for the figures.
func makeCheckpoint(t *testing.T) []byte {
	t.Helper()
	var list []safetensors.Tensor
	random := rand.NewChaCha8([32]byte([]byte("fuel: a checkpoint for its check")))
	add := func(name string, d fuel.DType, shape ...int) {
		n := 1
		for _, dim := range shape {
			n *= dim
		}
		size, err := d.Bytes(n)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, size)
		if _, err := random.Read(b); err != nil {
			t.Fatal(err)
		}
		if d == fuel.Bool {
			for i := range b {
				b[i] &= 1
			}
		}
		toHost(b, d)
		s, err := fuel.FromBytes(fuel.Device{}, d, b)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		list = append(list, safetensors.Tensor{Name: name, Shape: shape, Data: s})
	}
	for _, d := range formatDTypes() {
		whole := 1 // elements that fill whole bytes
		for whole*d.Bits()%8 != 0 {
			whole++
		}
		add(fmt.Sprintf("%s.odd", d), d, 7, 5, 3*whole)
		add(fmt.Sprintf("%s.empty", d), d, 3, 0, 5)
		if whole == 1 {
			add(fmt.Sprintf("%s.scalar", d), d)
		}
	}
	add("Gewichte größer/重み", fuel.F32, 256, 193)

	var b bytes.Buffer
	if err := safetensors.Write(&b, list, map[string]string{"format": "pt", "made by": "go test ./cmd/fuel -generate"}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// formatDTypes lists the dtypes that a file can have.
func formatDTypes() []fuel.DType {
	var list []fuel.DType
	for d := fuel.DType(1); d.Valid(); d++ {
		if _, err := d.Safetensors(); err == nil {
			list = append(list, d)
		}
	}
	return list
}

func TestCheckpointLacksNothingThatFilesCanHave(t *testing.T) {
	f, err := safetensors.FromBytes(checkpoint, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	have := map[fuel.DType]bool{}
	var odd, empty, scalar bool
	for i := range f.All() {
		have[i.DType] = true
		odd = odd || i.Bytes%2 == 1
		empty = empty || i.Len == 0
		scalar = scalar || len(i.Shape) == 0
	}
	for _, d := range formatDTypes() {
		if !have[d] {
			t.Errorf("no tensor of %s", d)
		}
	}
	if !odd || !empty || !scalar {
		t.Errorf("odd %t, empty %t, scalar %t", odd, empty, scalar)
	}
	if len(checkpoint) > 300<<10 {
		t.Errorf("%d bytes are too many for a program to carry", len(checkpoint))
	}
}
