package fueltest_test

import "testing"

// TestExample runs what the example shows: an example that shows a test cannot
// have one.
func TestExample(t *testing.T) { testPlace(t) }
