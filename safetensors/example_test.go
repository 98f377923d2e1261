package safetensors_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/safetensors"
)

// model writes a small file and returns its path.
func model(dir string) string {
	w, err := fuel.FromSlice(fuel.Device{}, []float32{1, 2, 3, 4, 5, 6})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	path := filepath.Join(dir, "model.safetensors")
	err = safetensors.WriteFile(path,
		[]safetensors.Tensor{{Name: "layer.weight", Shape: []int{2, 3}, Data: w}},
		map[string]string{"format": "pt"})
	if err != nil {
		log.Fatal(err)
	}
	return path
}

func Example() {
	dir, err := os.MkdirTemp("", "fuel")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	f, err := safetensors.Open(model(dir), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	for info := range f.All() {
		s, err := f.Tensor(info.Name)
		if err != nil {
			log.Fatal(err)
		}
		values, err := fuel.Slice[float32](s)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(info.Name, info.DType, info.Shape, values)
		if err := s.Close(); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(f.Metadata())
	// Output:
	// layer.weight f32 [2 3] [1 2 3 4 5 6]
	// map[format:pt]
}

// A program that must not copy says so, and learns which tensors would have
// to be.
func ExampleOptions() {
	dir, err := os.MkdirTemp("", "fuel")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	// 255 blanks where a header's padding was: the data begins at an odd byte.
	b, err := os.ReadFile(model(dir))
	if err != nil {
		log.Fatal(err)
	}
	b = append([]byte{255, 0, 0, 0, 0, 0, 0, 0},
		append([]byte(fmt.Sprintf("%-255s", `{"w":{"dtype":"F32","shape":[6],"data_offsets":[0,24]}}`)), b[len(b)-24:]...)...)
	path := filepath.Join(dir, "odd.safetensors")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		log.Fatal(err)
	}

	_, err = safetensors.Open(path, &safetensors.Options{RequireZeroCopy: true})
	fmt.Println("refused:", err != nil)
	f, err := safetensors.Open(path, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	for _, row := range f.Report().Tensors {
		fmt.Println(row.Name, "at byte", row.Offset, "copied:", row.Placement != safetensors.ZeroCopy)
	}
	// Output:
	// refused: true
	// w at byte 263 copied: true
}

func ExampleParse() {
	dir, err := os.MkdirTemp("", "fuel")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	r, err := os.Open(model(dir))
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	stat, err := r.Stat()
	if err != nil {
		log.Fatal(err)
	}

	h, err := safetensors.Parse(r, stat.Size())
	if err != nil {
		log.Fatal(err)
	}
	info, ok := h.Info("layer.weight")
	fmt.Println(info.DType, info.Shape, info.Bytes, "bytes at", info.Offset, ok)
	// Output: f32 [2 3] 24 bytes at 128 true
}
