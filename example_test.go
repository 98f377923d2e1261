package fuel_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/go-fuel/fuel"
)

func Example() {
	s, err := fuel.FromSlice(fuel.Device{}, []float32{1, 2, 3, 4}) // on the CPU
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	snapshot, err := s.Clone() // O(1): the bytes are shared until somebody writes
	if err != nil {
		log.Fatal(err)
	}
	defer snapshot.Close()
	if err := s.FillRange(context.Background(), 1, 2, []byte{0}); err != nil {
		log.Fatal(err)
	}
	now, _ := fuel.Slice[float32](s)
	before, _ := fuel.Slice[float32](snapshot)
	fmt.Println(now, before)
	// Output: [1 0 0 4] [1 2 3 4]
}

func ExampleProbe() {
	for _, row := range fuel.Probe(context.Background()) {
		if row.State != fuel.Available {
			fmt.Printf("%s: %s: %s\n", row.Kind, row.State, row.Reason)
			continue
		}
		for _, d := range row.Devices {
			fmt.Println(d.Device, row.State)
		}
	}
	// Output:
	// cpu available
	// cuda: not linked: not linked: add import _ "github.com/go-fuel/fuel/plugins/cuda" to the program
	// vulkan: not linked: not linked: add import _ "github.com/go-fuel/fuel/plugins/vulkan" to the program
	// metal: not linked: not linked: add import _ "github.com/go-fuel/fuel/plugins/metal" to the program
}

func ExampleMap() {
	f, err := os.Open("LICENSE")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	s, err := fuel.Map(f, fuel.U8, 0, 11) // not read, however large
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	if _, err := s.WriteAt([]byte("mit"), 0); err != nil { // to a private copy, not to the file
		log.Fatal(err)
	}
	fmt.Print(s.WriteTo(os.Stdout))
	// Output: mit License11 <nil>
}

// What a copy will cost, before it is made.
func ExamplePlanCopy() {
	src, err := fuel.FromSlice(fuel.Device{}, make([]uint8, 1024))
	if err != nil {
		log.Fatal(err)
	}
	defer src.Close()
	s, err := fuel.Alloc(fuel.Device{}, fuel.U8, 1024, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	snapshot, err := s.Clone()
	if err != nil {
		log.Fatal(err)
	}
	defer snapshot.Close()
	plan, err := fuel.PlanCopy(s, src)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(plan.Path, plan.Bytes, plan.Staged, plan.Private)
	fmt.Println(plan.Reason)
	// Output:
	// host 1024 0 true
	// the destination is shared with 1 more, so it first gets 1 KiB of its own; both are in host memory
}

// Weights that a GPU reads where the host has them, if it can.
func ExampleStorage_To_import() {
	ctx := context.Background()
	weights, err := fuel.FromSlice(fuel.Device{}, make([]float32, 1<<20))
	if err != nil {
		log.Fatal(err)
	}
	defer weights.Close() // the memory stays until the GPU has done with it
	var report fuel.CopyReport
	there, err := weights.To(ctx, fuel.Vulkan.Device(0), &fuel.CopyOptions{Import: true, Report: &report})
	if errors.Is(err, fuel.ErrUnavailable) {
		fmt.Println("no GPU:", err)
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	defer there.Close()
	if report.Path != fuel.PathImport {
		fmt.Println("copied:", report.Note)
	}
}

// A buffer through which batches go to the GPU, over and over.
func ExampleOptions_pinned() {
	ctx := context.Background()
	gpu := fuel.CUDA.Device(0)
	batch, err := fuel.Alloc(fuel.Device{}, fuel.F32, 1<<20, &fuel.Options{Pinned: gpu})
	if err != nil {
		log.Fatal(err)
	}
	defer batch.Close()
	if in := batch.Region(); !in.Pinned {
		fmt.Println("ordinary memory:", in.PinnedRefused)
	}
	there, err := fuel.Alloc(gpu, fuel.F32, 1<<20, nil)
	if errors.Is(err, fuel.ErrUnavailable) {
		fmt.Println("no GPU:", err)
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	defer there.Close()
	for range 10 {
		values, err := fuel.MutableSlice[float32](batch)
		if err != nil {
			log.Fatal(err)
		}
		values[0]++ // fill it
		if err := there.CopyFrom(ctx, batch, nil); err != nil {
			log.Fatal(err)
		}
	}
}

func ExampleCompose() {
	s, err := fuel.Compose(fuel.Device{}, []fuel.SlotSpec{
		{Name: "values", DType: fuel.F32, Len: 3},
		{Name: "indices", DType: fuel.I64, Len: 3},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	indices, err := s.Slot("indices")
	if err != nil {
		log.Fatal(err)
	}
	defer indices.Close()
	fmt.Println(indices.DType(), indices.Len(), s.Bundle().Slot(1).Offset)
	// Output: i64 3 64
}

func ExampleDispatch() {
	s, err := fuel.FromSlice(fuel.Device{}, []uint8{1, 2, 3})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	sum, err := fuel.Dispatch(s, fuel.Cases[int]{
		CPU: func(m fuel.CPUMemory) (sum int, err error) {
			for _, b := range m.Bytes {
				sum += int(b)
			}
			return sum, nil
		},
	})
	fmt.Println(sum, err)
	// Output: 6 <nil>
}

func ExampleConvert() {
	half, err := fuel.FromSlice(fuel.Device{}, []fuel.Float16{0x3C00, 0xC000, 0x3555})
	if err != nil {
		log.Fatal(err)
	}
	defer half.Close()
	s, err := fuel.Convert(context.Background(), half, fuel.F32, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	v, _ := fuel.Slice[float32](s)
	fmt.Println(s, v)
	// Output: f32[3] plain on cpu [1 -2 0.33325195]
}
