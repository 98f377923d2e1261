package fuel

// For tests of package fuel_test.
var (
	ForcePool = forcePool
	Unchecked = unchecked
)
