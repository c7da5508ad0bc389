//go:build !cgo || !cuda

package topology

// addDriverFacts does nothing: the NVIDIA library is reached through cgo, in builds with tag cuda.
func addDriverFacts(*Box) {}
