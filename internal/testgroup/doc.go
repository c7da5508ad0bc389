// Package testgroup runs the N ranks of a test: as goroutines of the test process,
// or as processes, which are the test binary executed again.
//
// A test package that wants processes names its roles in TestMain:
//
//	func TestMain(m *testing.M) {
//		testgroup.Main(m, map[string]testgroup.Role{"reduce": reduceRole})
//	}
//
// and a test starts them with Start(t, "reduce", n, ...). Processes are ended and
// waited for when the test ends, whatever came of it.
package testgroup
