package fueltest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/fueltest"
)

// place is code of an application: it brings weights to the first GPU of a
// kind, and keeps them on the CPU, saying why, where that does not work.
func place(ctx context.Context, kind fuel.Kind, weights []float32) (s *fuel.Storage, why error, err error) {
	host, err := fuel.FromSliceCPU(weights)
	if err != nil {
		return nil, nil, err
	}
	there, err := host.To(ctx, fuel.Device{Kind: kind}, nil)
	if errors.Is(err, fuel.ErrUnavailable) || errors.Is(err, fuel.ErrOutOfMemory) {
		return host, err, nil
	}
	return there, nil, errors.Join(err, host.Close())
}

// A test of it would be named TestPlace, in the application's place_test.go.
func testPlace(t *testing.T) {
	ctx := context.Background()
	weights := []float32{1, 2, 3, 4}

	t.Run("there is a GPU", func(t *testing.T) {
		gpu := fueltest.Register(t, fuel.Vulkan, fueltest.FakeOptions{NonCoherent: true, Lazy: true})
		fueltest.LeakCheck(t)
		s, why, err := place(ctx, fuel.Vulkan, weights)
		if err != nil || why != nil {
			t.Fatal(why, err)
		}
		defer s.Close()
		if s.Device() != gpu.Device(0) || gpu.Calls(fueltest.OpUpload) != 1 {
			t.Errorf("the weights are on %s after %d uploads", s.Device(), gpu.Calls(fueltest.OpUpload))
		}
	})
	t.Run("its driver is too old", func(t *testing.T) {
		fueltest.Register(t, fuel.Vulkan, fueltest.FakeOptions{MissingSymbol: "vkWaitSemaphores"})
		fueltest.LeakCheck(t)
		s, why, err := place(ctx, fuel.Vulkan, weights)
		if err != nil || why == nil {
			t.Fatal(why, err)
		}
		defer s.Close()
		t.Logf("on %s, since: %v", s.Device(), why)
	})
	t.Run("it is full", func(t *testing.T) {
		gpu := fueltest.Register(t, fuel.Vulkan, fueltest.FakeOptions{Memory: 8})
		fueltest.LeakCheck(t)
		s, why, err := place(ctx, fuel.Vulkan, weights)
		if err != nil || !errors.Is(why, fuel.ErrOutOfMemory) {
			t.Fatal(why, err)
		}
		defer s.Close()
		if n, _ := gpu.Live(); n != 0 {
			t.Errorf("%d allocations are left on the GPU", n)
		}
	})
	t.Run("a transfer fails", func(t *testing.T) {
		gpu := fueltest.Register(t, fuel.Vulkan, fueltest.FakeOptions{})
		fueltest.LeakCheck(t)
		gpu.Fail(fueltest.OpUpload, 1, fuel.ErrDeviceLost)
		if _, _, err := place(ctx, fuel.Vulkan, weights); !errors.Is(err, fuel.ErrDeviceLost) {
			t.Error(err)
		}
	})
}

// How an application tests what it does with a GPU, and without one, on a
// machine that has none.
func Example() {
	_ = testPlace // go test calls it, as TestPlace

	// What its user sees where nothing is linked:
	s, why, err := place(context.Background(), fuel.Metal, []float32{1})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	fmt.Println(s.Device(), errors.Is(why, fuel.ErrUnavailable))
	// Output: cpu true
}
