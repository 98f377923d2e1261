package fuel_test

import (
	"context"
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
	// cuda: not linked: this version of fuel has no plugin for it
	// vulkan: not linked: this version of fuel has no plugin for it
	// metal: not linked: this version of fuel has no plugin for it
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
