// Command core imports the core and a file format, and nothing else of this
// module: it must be a static program. It is built by a stage of .ci/run.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/safetensors"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("core ok")
}

// run takes values through a Storage, a file in memory and a Storage again.
func run() error {
	if state := fuel.Probe(context.Background())[fuel.CPU].State; state != fuel.Available {
		return fmt.Errorf("the CPU is %v", state)
	}
	want := []float32{1, 2, 3, 4}
	s, err := fuel.FromSlice(fuel.Device{}, want)
	if err != nil {
		return err
	}
	defer s.Close()
	var file bytes.Buffer
	if err := safetensors.Write(&file, []safetensors.Tensor{{Name: "t", Shape: []int{4}, Data: s}}, nil); err != nil {
		return err
	}
	f, err := safetensors.FromBytes(file.Bytes(), nil)
	if err != nil {
		return err
	}
	defer f.Close()
	read, err := f.Tensor("t")
	if err != nil {
		return err
	}
	defer read.Close()
	got, err := fuel.Slice[float32](read)
	if err != nil {
		return err
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("got %v, want %v", got, want)
	}
	return nil
}
