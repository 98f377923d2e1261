package fuel_test

import (
	"fmt"
	"log"

	"github.com/go-fuel/fuel"
)

func ExampleNewShared() {
	s, err := fuel.NewShared(fuel.F32, 3, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	err = fuel.MutateSlice(s, func(v []float32) error {
		copy(v, []float32{1, 2, 3})
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := fuel.Seal(s); err != nil { // nobody writes any more, in any process
		log.Fatal(err)
	}
	f, off, err := fuel.SharedFile(s)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()

	// In another process, which got f by exec.Cmd's ExtraFiles or through a
	// Unix socket, and off, dtype and length by whatever means:
	w, err := fuel.OpenShared(f, fuel.F32, off, 3, &fuel.SharedOptions{ReadOnly: true})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	v, _ := fuel.Slice[float32](w)
	fmt.Println(v, w.Region().Memory, w.Region().Sealed)
	// Output: [1 2 3] shared true
}
